BEGIN;
CREATE TABLE delivery_problems ( code VARCHAR(64) NOT NULL, subject VARCHAR(255) NOT NULL, account VARCHAR(64),
severity VARCHAR(64) NOT NULL, level INTEGER NOT NULL, since_utc TIMESTAMP(3) WITHOUT TIME ZONE,
how_many INTEGER NOT NULL, cause VARCHAR NOT NULL, remedy VARCHAR NOT NULL, facts VARCHAR NOT NULL,
told INTEGER NOT NULL, noted_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
CONSTRAINT delivery_problems_pk PRIMARY KEY (code, subject) );
CREATE TABLE delivery_daemon ( id INTEGER NOT NULL, seen_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
silent_from_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, cause VARCHAR NOT NULL, remedy VARCHAR NOT NULL,
CONSTRAINT delivery_daemon_pk PRIMARY KEY (id) );
CREATE TABLE delivery_books ( id VARCHAR(64) NOT NULL, older_since_utc TIMESTAMP(3) WITHOUT TIME ZONE,
last_known_utc TIMESTAMP(3) WITHOUT TIME ZONE, missing INTEGER, missing_numbers VARCHAR(64),
generation BIGINT DEFAULT 0 NOT NULL, CONSTRAINT delivery_books_pk PRIMARY KEY (id) );
CREATE TABLE delivery_lamps ( account VARCHAR(64) NOT NULL, lamp VARCHAR(64) NOT NULL,
since_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, code VARCHAR(64), sentence VARCHAR NOT NULL, remedy VARCHAR,
CONSTRAINT delivery_lamps_pk PRIMARY KEY (account) );
CREATE TABLE delivery_board_devices ( id VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL, role VARCHAR(64) NOT NULL,
cookie_hash VARCHAR(64) NOT NULL, paired_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
seen_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, revoked_utc TIMESTAMP(3) WITHOUT TIME ZONE,
CONSTRAINT delivery_board_devices_pk PRIMARY KEY (id) );
CREATE UNIQUE INDEX delivery_board_devices_cookie_ix ON delivery_board_devices (cookie_hash);
CREATE TABLE delivery_board_pairing ( id INTEGER NOT NULL, code_hash VARCHAR(64) NOT NULL, role VARCHAR(64) NOT NULL,
expires_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, tries_left INTEGER NOT NULL,
CONSTRAINT delivery_board_pairing_pk PRIMARY KEY (id) );
CREATE TABLE delivery_board_silenced ( subject VARCHAR(255) NOT NULL, device VARCHAR(255) NOT NULL,
at_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, CONSTRAINT delivery_board_silenced_pk PRIMARY KEY (subject) );
CREATE INDEX delivery_board_silenced_at_ix ON delivery_board_silenced (at_utc);
CREATE TABLE delivery_board_slots ( account VARCHAR(64) NOT NULL, slot_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
polls INTEGER DEFAULT 0 NOT NULL, failed INTEGER DEFAULT 0 NOT NULL, logins INTEGER DEFAULT 0 NOT NULL,
CONSTRAINT delivery_board_slots_pk PRIMARY KEY (account, slot_utc) );
CREATE INDEX delivery_board_slots_slot_ix ON delivery_board_slots (slot_utc);
CREATE TABLE delivery_account_settings ( name VARCHAR(64) NOT NULL, fingerprint VARCHAR(64) NOT NULL, sealed VARCHAR,
key_id VARCHAR(64), enabled INTEGER NOT NULL, version BIGINT NOT NULL,
changed_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, CONSTRAINT delivery_account_settings_pk PRIMARY KEY (name),
CONSTRAINT delivery_account_settings_fingerprint_uq UNIQUE (fingerprint) );
CREATE TABLE delivery_fleet ( id INTEGER NOT NULL, buckets INTEGER DEFAULT 64 NOT NULL,
accounts_version BIGINT DEFAULT 0 NOT NULL, CONSTRAINT delivery_fleet_pk PRIMARY KEY (id) );
INSERT INTO delivery_fleet (id) VALUES (1);
CREATE TABLE delivery_buckets ( bucket INTEGER NOT NULL, replica VARCHAR(64), taken_utc TIMESTAMP(3) WITHOUT TIME ZONE,
CONSTRAINT delivery_buckets_pk PRIMARY KEY (bucket) );
CREATE TABLE delivery_replicas ( replica VARCHAR(64) NOT NULL, number INTEGER NOT NULL,
epoch INTEGER DEFAULT 0 NOT NULL, node VARCHAR(64), started_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
problems VARCHAR, CONSTRAINT delivery_replicas_pk PRIMARY KEY (replica) );
CREATE TABLE delivery_orders ( payment_key VARCHAR(36) NOT NULL, account VARCHAR(64) NOT NULL, order_number BIGINT,
status_id INTEGER, status VARCHAR(64) NOT NULL, status_text VARCHAR(255), restaurant_id VARCHAR(255),
restaurant_name VARCHAR(255), shipping_method VARCHAR(255), payment_method VARCHAR(255), payment_code VARCHAR(64),
amount_due NUMERIC(14, 4), note VARCHAR, total NUMERIC(14, 4), discount NUMERIC(14, 4), courier_type VARCHAR(255),
courier_fee NUMERIC(14, 4), order_tip NUMERIC(14, 4), ordered_at VARCHAR(255), scheduled_for VARCHAR(255),
customer_name VARCHAR(255), customer_phone VARCHAR(255), address VARCHAR(255), address_description VARCHAR,
apartment_no VARCHAR(255), building_no VARCHAR(255), neighborhood_name VARCHAR(255), district_name VARCHAR(255),
city_name VARCHAR(255), payload VARCHAR, revision INTEGER DEFAULT 1 NOT NULL,
last_change VARCHAR(64) DEFAULT 'new' NOT NULL, service_status_id INTEGER, payload_hash VARCHAR(64),
received_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, changed_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
acknowledged_utc TIMESTAMP(3) WITHOUT TIME ZONE, acknowledged_status_id INTEGER,
ended_utc TIMESTAMP(3) WITHOUT TIME ZONE, ended_by VARCHAR(64), problem VARCHAR,
pos_revision INTEGER DEFAULT 0 NOT NULL, pos_reference VARCHAR(255), silence_from BIGINT, service_key VARCHAR(36),
pos_total NUMERIC(14, 4), contents_revision INTEGER DEFAULT 1 NOT NULL, start_utc TIMESTAMP(3) WITHOUT TIME ZONE,
remarks VARCHAR, CONSTRAINT delivery_orders_pk PRIMARY KEY (payment_key),
CONSTRAINT delivery_orders_pos_revision_known CHECK (pos_revision >= 0 AND pos_revision <= revision) );
CREATE INDEX delivery_orders_taken_ix ON delivery_orders (silence_from) WHERE ended_utc IS NULL AND pos_revision > 0;
CREATE INDEX delivery_orders_open_ix ON delivery_orders (changed_utc) WHERE ended_utc IS NULL;
CREATE INDEX delivery_orders_changed_ix ON delivery_orders (changed_utc) WHERE pos_revision > 0 AND pos_revision < revision;
CREATE INDEX delivery_orders_contents_ix ON delivery_orders (ended_utc) WHERE payload IS NOT NULL;
CREATE INDEX delivery_orders_ended_ix ON delivery_orders (received_utc) WHERE ended_utc IS NOT NULL;
CREATE INDEX delivery_orders_new_ix ON delivery_orders (received_utc) WHERE pos_revision = 0 AND ended_utc IS NULL;
CREATE TABLE delivery_order_events ( id BIGINT GENERATED BY DEFAULT AS IDENTITY, payment_key VARCHAR(36) NOT NULL,
at_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, event VARCHAR(64) NOT NULL, status_id INTEGER, status VARCHAR(64),
detail VARCHAR, CONSTRAINT delivery_order_events_pk PRIMARY KEY (id) );
CREATE INDEX delivery_order_events_order_ix ON delivery_order_events (payment_key, id);
CREATE TABLE delivery_actions ( id BIGINT GENERATED BY DEFAULT AS IDENTITY, action VARCHAR(64) NOT NULL,
payment_key VARCHAR(36), restaurant_id VARCHAR(36), food_id NUMERIC, account VARCHAR(64), preparing_time NUMERIC,
reason_id NUMERIC, valid_minutes NUMERIC, request_id VARCHAR(64) DEFAULT CAST(gen_random_uuid() AS VARCHAR) NOT NULL,
created_by VARCHAR(255), withdraw INTEGER DEFAULT 0 NOT NULL,
created_utc TIMESTAMP(3) WITHOUT TIME ZONE DEFAULT timezone('utc', clock_timestamp()) NOT NULL,
state VARCHAR(64) DEFAULT 'pending' NOT NULL, attempts INTEGER DEFAULT 0 NOT NULL,
next_attempt_utc TIMESTAMP(3) WITHOUT TIME ZONE, expires_utc TIMESTAMP(3) WITHOUT TIME ZONE, http_status INTEGER,
error_code VARCHAR(64), error_text VARCHAR, known_by VARCHAR(64), finished_utc TIMESTAMP(3) WITHOUT TIME ZONE,
CONSTRAINT delivery_actions_pk PRIMARY KEY (id), CONSTRAINT delivery_actions_request_id_uq UNIQUE (request_id),
CONSTRAINT delivery_actions_action_known CHECK (action IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')),
CONSTRAINT delivery_actions_state_known CHECK (state IN ('pending', 'sending', 'done', 'refused', 'failed', 'expired', 'superseded', 'withdrawn')),
CONSTRAINT delivery_actions_order_action_names_its_order CHECK (NOT (action IN ('accept', 'on_the_way', 'complete', 'cancel')) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_restaurant_action_names_its_restaurant CHECK (NOT (action IN ('open_restaurant', 'close_restaurant')) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_food_action_names_its_food CHECK (NOT (action IN ('activate_food', 'deactivate_food')) OR (food_id IS NOT NULL AND payment_key IS NULL)),
CONSTRAINT delivery_actions_accept_needs_preparing_time_1_to_1440 CHECK ((action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440) OR (action <> 'accept' AND preparing_time IS NULL) OR action NOT IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')),
CONSTRAINT delivery_actions_cancel_needs_reason_id_1_to_8 CHECK ((action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8) OR (action <> 'cancel' AND reason_id IS NULL) OR action NOT IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')),
CONSTRAINT delivery_actions_valid_minutes_1_to_10080 CHECK (valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080),
CONSTRAINT delivery_actions_food_id_1_or_more CHECK (food_id IS NULL OR food_id >= 1),
CONSTRAINT delivery_actions_withdraw_0_or_1 CHECK (withdraw IN (0, 1)),
CONSTRAINT delivery_actions_food_id_integer CHECK (food_id IS NULL OR (food_id = floor(food_id) AND food_id BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_preparing_time_integer CHECK (preparing_time IS NULL OR (preparing_time = floor(preparing_time) AND preparing_time BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_reason_id_integer CHECK (reason_id IS NULL OR (reason_id = floor(reason_id) AND reason_id BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_valid_minutes_integer CHECK (valid_minutes IS NULL OR (valid_minutes = floor(valid_minutes) AND valid_minutes BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_request_id_1_to_64_characters CHECK (length(request_id) BETWEEN 1 AND 64),
CONSTRAINT delivery_actions_payment_key_uuid CHECK (payment_key IS NULL OR payment_key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'),
CONSTRAINT delivery_actions_restaurant_id_uuid CHECK (restaurant_id IS NULL OR restaurant_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')
);
CREATE INDEX delivery_actions_finished_ix ON delivery_actions (finished_utc);
CREATE INDEX delivery_actions_withdraw_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending') AND withdraw = 1;
CREATE INDEX delivery_actions_failed_ix ON delivery_actions (finished_utc) WHERE state = 'failed';
CREATE INDEX delivery_actions_unfinished_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending');
CREATE INDEX delivery_actions_payment_key_ix ON delivery_actions (payment_key, id);
CREATE FUNCTION delivery_wake() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_notify('delivery_actions', ''); RETURN NULL; END$$;
CREATE TRIGGER delivery_actions_wake AFTER INSERT OR UPDATE OF withdraw ON delivery_actions FOR EACH STATEMENT EXECUTE FUNCTION delivery_wake();
CREATE TABLE delivery_action_attempts ( action_id BIGINT NOT NULL, attempt INTEGER NOT NULL,
started_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, finished_utc TIMESTAMP(3) WITHOUT TIME ZONE, outcome VARCHAR(64),
spent INTEGER DEFAULT 0 NOT NULL, http_status INTEGER, error_code VARCHAR(64), detail VARCHAR,
CONSTRAINT delivery_action_attempts_pk PRIMARY KEY (action_id, attempt) );
CREATE TABLE delivery_accounts ( fingerprint VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL,
state VARCHAR(64) DEFAULT 'new' NOT NULL, last_poll_utc TIMESTAMP(3) WITHOUT TIME ZONE,
last_poll_ok_utc TIMESTAMP(3) WITHOUT TIME ZONE, next_poll_utc TIMESTAMP(3) WITHOUT TIME ZONE,
token_expires_utc TIMESTAMP(3) WITHOUT TIME ZONE, last_error VARCHAR, listened_seconds BIGINT DEFAULT 0 NOT NULL,
polled_in_turn_with VARCHAR, not_stored INTEGER DEFAULT 0 NOT NULL, not_written INTEGER DEFAULT 0 NOT NULL,
CONSTRAINT delivery_accounts_pk PRIMARY KEY (fingerprint) );
CREATE TABLE delivery_tokens ( fingerprint VARCHAR(64) NOT NULL, ciphertext VARCHAR NOT NULL,
issued_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, expires_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
CONSTRAINT delivery_tokens_pk PRIMARY KEY (fingerprint) );
CREATE TABLE delivery_restaurants ( account VARCHAR(64) NOT NULL, id VARCHAR(255) NOT NULL, name VARCHAR(255),
status VARCHAR(64), status_utc TIMESTAMP(3) WITHOUT TIME ZONE, service_id VARCHAR(255),
status_since_utc TIMESTAMP(3) WITHOUT TIME ZONE, status_by VARCHAR,
CONSTRAINT delivery_restaurants_pk PRIMARY KEY (account, id) );
CREATE TABLE delivery_cancel_reasons ( id INTEGER NOT NULL, reason VARCHAR(255) NOT NULL,
CONSTRAINT delivery_cancel_reasons_pk PRIMARY KEY (id) );
CREATE TABLE delivery_payment_methods ( code VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
CONSTRAINT delivery_payment_methods_pk PRIMARY KEY (code) );
CREATE TABLE delivery_shipping_methods ( code VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
CONSTRAINT delivery_shipping_methods_pk PRIMARY KEY (code) );
CREATE TABLE delivery_quarantine ( id BIGINT GENERATED BY DEFAULT AS IDENTITY, account VARCHAR(64) NOT NULL,
payment_key VARCHAR(36), payload VARCHAR NOT NULL, payload_hash VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL,
first_seen_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL, last_seen_utc TIMESTAMP(3) WITHOUT TIME ZONE NOT NULL,
times_seen INTEGER DEFAULT 1 NOT NULL, resolved_utc TIMESTAMP(3) WITHOUT TIME ZONE,
CONSTRAINT delivery_quarantine_pk PRIMARY KEY (id),
CONSTRAINT delivery_quarantine_account_uq UNIQUE (account, payload_hash) );
CREATE INDEX delivery_quarantine_unresolved_ix ON delivery_quarantine (id) WHERE resolved_utc IS NULL;
CREATE VIEW delivery_alarms AS SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy
FROM delivery_problems WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= timezone('utc', clock_timestamp())) UNION ALL SELECT 'not_polling', '', NULL, 'severe', 1, delivery_daemon.seen_utc, 1, delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_daemon WHERE delivery_daemon.silent_from_utc < timezone('utc', clock_timestamp());
CREATE VIEW delivery_lamp AS SELECT delivery_lamps.account, delivery_lamps.lamp, delivery_lamps.since_utc, delivery_lamps.code, delivery_lamps.sentence, delivery_lamps.remedy
FROM delivery_lamps WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= timezone('utc', clock_timestamp())) UNION ALL SELECT delivery_lamps.account, 'red', delivery_daemon.seen_utc, 'not_polling', delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_lamps JOIN delivery_daemon ON delivery_daemon.silent_from_utc < timezone('utc', clock_timestamp());
CREATE TABLE delivery_order_items ( payment_key VARCHAR(36) NOT NULL, line_no INTEGER NOT NULL, item_id VARCHAR(255),
food_id BIGINT, name VARCHAR(255), note VARCHAR, price NUMERIC(14, 4), quantity NUMERIC(14, 4), total NUMERIC(14, 4),
CONSTRAINT delivery_order_items_pk PRIMARY KEY (payment_key, line_no),
CONSTRAINT delivery_order_items_payment_key_fk FOREIGN KEY(payment_key) REFERENCES delivery_orders (payment_key) ON DELETE CASCADE
);
CREATE VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_revision = 0 AND ended_utc IS NULL;
CREATE VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_revision > 0 AND pos_revision < revision;
CREATE VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, CASE WHEN (ended_utc IS NULL AND delivery_orders.status_id = 1 AND NOT (EXISTS (SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND action IN ('accept', 'cancel') AND state IN ('pending', 'sending', 'done')))) THEN delivery_orders.received_utc END AS needs_answer_since, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE ended_utc IS NULL;
CREATE TABLE delivery_order_item_options ( payment_key VARCHAR(36) NOT NULL, line_no INTEGER NOT NULL,
option_no INTEGER NOT NULL, group_id BIGINT, group_name VARCHAR(255), type VARCHAR(255), operation VARCHAR(255),
option_id BIGINT, option_name VARCHAR(255), price NUMERIC(14, 4),
CONSTRAINT delivery_order_item_options_pk PRIMARY KEY (payment_key, line_no, option_no),
CONSTRAINT delivery_order_item_options_payment_key_fk FOREIGN KEY(payment_key, line_no) REFERENCES delivery_order_items (payment_key, line_no) ON DELETE CASCADE
);
CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT delivery_schema_version_pkc PRIMARY KEY (version_num));
INSERT INTO delivery_schema_version VALUES ('0009');
COMMIT;
