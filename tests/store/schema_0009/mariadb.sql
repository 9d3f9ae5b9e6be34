BEGIN;
CREATE TABLE delivery_problems ( code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
subject VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
severity VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, level INTEGER NOT NULL, since_utc DATETIME(3),
how_many INTEGER NOT NULL, cause LONGTEXT NOT NULL, remedy LONGTEXT NOT NULL, facts LONGTEXT NOT NULL,
told INTEGER NOT NULL, noted_utc DATETIME(3) NOT NULL, CONSTRAINT delivery_problems_pk PRIMARY KEY (code, subject)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_daemon ( id INTEGER NOT NULL, seen_utc DATETIME(3) NOT NULL, silent_from_utc DATETIME(3) NOT NULL,
cause LONGTEXT NOT NULL, remedy LONGTEXT NOT NULL, CONSTRAINT delivery_daemon_pk PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_books ( id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
older_since_utc DATETIME(3), last_known_utc DATETIME(3), missing INTEGER,
missing_numbers VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, generation BIGINT NOT NULL DEFAULT 0,
CONSTRAINT delivery_books_pk PRIMARY KEY (id) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_lamps ( account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
lamp VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, since_utc DATETIME(3) NOT NULL,
code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, sentence LONGTEXT NOT NULL, remedy LONGTEXT,
CONSTRAINT delivery_lamps_pk PRIMARY KEY (account) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_board_devices ( id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
name VARCHAR(255) NOT NULL, `role` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
cookie_hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, paired_utc DATETIME(3) NOT NULL,
seen_utc DATETIME(3) NOT NULL, revoked_utc DATETIME(3), CONSTRAINT delivery_board_devices_pk PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE UNIQUE INDEX delivery_board_devices_cookie_ix ON delivery_board_devices (cookie_hash);
CREATE TABLE delivery_board_pairing ( id INTEGER NOT NULL,
code_hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
`role` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, expires_utc DATETIME(3) NOT NULL,
tries_left INTEGER NOT NULL, CONSTRAINT delivery_board_pairing_pk PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_board_silenced ( subject VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
device VARCHAR(255) NOT NULL, at_utc DATETIME(3) NOT NULL, CONSTRAINT delivery_board_silenced_pk PRIMARY KEY (subject)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_board_silenced_at_ix ON delivery_board_silenced (at_utc);
CREATE TABLE delivery_board_slots ( account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
slot_utc DATETIME(3) NOT NULL, polls INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
logins INTEGER NOT NULL DEFAULT 0, CONSTRAINT delivery_board_slots_pk PRIMARY KEY (account, slot_utc)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_board_slots_slot_ix ON delivery_board_slots (slot_utc);
CREATE TABLE delivery_account_settings ( name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
fingerprint VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, sealed LONGTEXT,
key_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, enabled INTEGER NOT NULL, version BIGINT NOT NULL,
changed_utc DATETIME(3) NOT NULL, CONSTRAINT delivery_account_settings_pk PRIMARY KEY (name),
CONSTRAINT delivery_account_settings_fingerprint_uq UNIQUE (fingerprint)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_fleet ( id INTEGER NOT NULL, buckets INTEGER NOT NULL DEFAULT 64,
accounts_version BIGINT NOT NULL DEFAULT 0, CONSTRAINT delivery_fleet_pk PRIMARY KEY (id)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
INSERT INTO delivery_fleet (id) VALUES (1);
CREATE TABLE delivery_buckets ( bucket INTEGER NOT NULL, replica VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
taken_utc DATETIME(3), CONSTRAINT delivery_buckets_pk PRIMARY KEY (bucket)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_replicas ( replica VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
number INTEGER NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, node VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
started_utc DATETIME(3) NOT NULL, problems LONGTEXT, CONSTRAINT delivery_replicas_pk PRIMARY KEY (replica)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_orders ( payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, order_number BIGINT, status_id INTEGER,
status VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, status_text VARCHAR(255),
restaurant_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, restaurant_name VARCHAR(255),
shipping_method VARCHAR(255), payment_method VARCHAR(255),
payment_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, amount_due NUMERIC(14, 4), note LONGTEXT,
total NUMERIC(14, 4), discount NUMERIC(14, 4), courier_type VARCHAR(255), courier_fee NUMERIC(14, 4),
order_tip NUMERIC(14, 4), ordered_at VARCHAR(255), scheduled_for VARCHAR(255), customer_name VARCHAR(255),
customer_phone VARCHAR(255), address VARCHAR(255), address_description LONGTEXT, apartment_no VARCHAR(255),
building_no VARCHAR(255), neighborhood_name VARCHAR(255), district_name VARCHAR(255), city_name VARCHAR(255),
payload LONGTEXT, revision INTEGER NOT NULL DEFAULT 1,
last_change VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'new', service_status_id INTEGER,
payload_hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, received_utc DATETIME(3) NOT NULL,
changed_utc DATETIME(3) NOT NULL, acknowledged_utc DATETIME(3), acknowledged_status_id INTEGER, ended_utc DATETIME(3),
ended_by VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, problem LONGTEXT,
pos_revision INTEGER NOT NULL DEFAULT 0, pos_reference VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
silence_from BIGINT, service_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, pos_total NUMERIC(14, 4),
contents_revision INTEGER NOT NULL DEFAULT 1, start_utc DATETIME(3), remarks LONGTEXT,
CONSTRAINT delivery_orders_pk PRIMARY KEY (payment_key),
CONSTRAINT delivery_orders_pos_revision_known CHECK (pos_revision >= 0 AND pos_revision <= revision)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_orders_open_ix ON delivery_orders (ended_utc, changed_utc);
CREATE INDEX delivery_orders_taken_ix ON delivery_orders (ended_utc, pos_revision, silence_from);
CREATE INDEX delivery_orders_new_ix ON delivery_orders (pos_revision, ended_utc, received_utc);
CREATE INDEX delivery_orders_ended_ix ON delivery_orders (ended_utc, received_utc);
ALTER TABLE delivery_orders ADD COLUMN pos_is_behind SMALLINT GENERATED ALWAYS AS (CASE WHEN pos_revision > 0 AND pos_revision < revision THEN 1 END) STORED INVISIBLE, ADD COLUMN contents_ended_utc DATETIME(3) GENERATED ALWAYS AS (CASE WHEN payload IS NOT NULL THEN ended_utc END) STORED INVISIBLE;
CREATE INDEX delivery_orders_changed_ix ON delivery_orders (pos_is_behind, changed_utc);
CREATE INDEX delivery_orders_contents_ix ON delivery_orders (contents_ended_utc);
CREATE TABLE delivery_order_events ( id BIGINT NOT NULL AUTO_INCREMENT,
payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, at_utc DATETIME(3) NOT NULL,
event VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, status_id INTEGER,
status VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, detail LONGTEXT,
CONSTRAINT delivery_order_events_pk PRIMARY KEY (id) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_order_events_order_ix ON delivery_order_events (payment_key, id);
CREATE TABLE delivery_actions ( id BIGINT NOT NULL AUTO_INCREMENT,
action VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
restaurant_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, food_id NUMERIC(21, 2),
account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, preparing_time NUMERIC(21, 2), reason_id NUMERIC(21, 2),
valid_minutes NUMERIC(21, 2),
request_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (uuid()), created_by VARCHAR(255),
withdraw INTEGER NOT NULL DEFAULT 0, created_utc DATETIME(3) NOT NULL DEFAULT (utc_timestamp(3)),
state VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'pending',
attempts INTEGER NOT NULL DEFAULT 0, next_attempt_utc DATETIME(3), expires_utc DATETIME(3), http_status INTEGER,
error_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, error_text LONGTEXT,
known_by VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, finished_utc DATETIME(3),
CONSTRAINT delivery_actions_pk PRIMARY KEY (id), CONSTRAINT delivery_actions_request_id_uq UNIQUE (request_id),
CONSTRAINT delivery_actions_action_known CHECK (CAST(action AS BINARY) IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')),
CONSTRAINT delivery_actions_state_known CHECK (CAST(state AS BINARY) IN ('pending', 'sending', 'done', 'refused', 'failed', 'expired', 'superseded', 'withdrawn')),
CONSTRAINT delivery_actions_order_action_names_its_order CHECK (NOT (action IN ('accept', 'on_the_way', 'complete', 'cancel')) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_restaurant_action_names_its_restaurant CHECK (NOT (action IN ('open_restaurant', 'close_restaurant')) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_food_action_names_its_food CHECK (NOT (action IN ('activate_food', 'deactivate_food')) OR (food_id IS NOT NULL AND payment_key IS NULL)),
CONSTRAINT delivery_actions_accept_needs_preparing_time_1_to_1440 CHECK ((action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440) OR (action <> 'accept' AND preparing_time IS NULL)),
CONSTRAINT delivery_actions_cancel_needs_reason_id_1_to_8 CHECK ((action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8) OR (action <> 'cancel' AND reason_id IS NULL)),
CONSTRAINT delivery_actions_valid_minutes_1_to_10080 CHECK (valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080),
CONSTRAINT delivery_actions_food_id_1_or_more CHECK (food_id IS NULL OR food_id >= 1),
CONSTRAINT delivery_actions_withdraw_0_or_1 CHECK (withdraw IN (0, 1)),
CONSTRAINT delivery_actions_food_id_integer CHECK (food_id IS NULL OR (food_id = floor(food_id) AND food_id BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_preparing_time_integer CHECK (preparing_time IS NULL OR (preparing_time = floor(preparing_time) AND preparing_time BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_reason_id_integer CHECK (reason_id IS NULL OR (reason_id = floor(reason_id) AND reason_id BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_valid_minutes_integer CHECK (valid_minutes IS NULL OR (valid_minutes = floor(valid_minutes) AND valid_minutes BETWEEN -9223372036854775808 AND 9223372036854775807)),
CONSTRAINT delivery_actions_request_id_1_to_64_characters CHECK (char_length(request_id) BETWEEN 1 AND 64),
CONSTRAINT delivery_actions_payment_key_uuid CHECK (payment_key IS NULL OR payment_key REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'),
CONSTRAINT delivery_actions_restaurant_id_uuid CHECK (restaurant_id IS NULL OR restaurant_id REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_actions_finished_ix ON delivery_actions (finished_utc);
CREATE INDEX delivery_actions_unfinished_ix ON delivery_actions (state, id);
CREATE INDEX delivery_actions_failed_ix ON delivery_actions (state, finished_utc);
CREATE INDEX delivery_actions_withdraw_ix ON delivery_actions (state, withdraw, id);
CREATE INDEX delivery_actions_payment_key_ix ON delivery_actions (payment_key, id);
CREATE TABLE delivery_action_attempts ( action_id BIGINT NOT NULL, attempt INTEGER NOT NULL,
started_utc DATETIME(3) NOT NULL, finished_utc DATETIME(3),
outcome VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, spent INTEGER NOT NULL DEFAULT 0, http_status INTEGER,
error_code VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, detail LONGTEXT,
CONSTRAINT delivery_action_attempts_pk PRIMARY KEY (action_id, attempt)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_accounts ( fingerprint VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
state VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'new', last_poll_utc DATETIME(3),
last_poll_ok_utc DATETIME(3), next_poll_utc DATETIME(3), token_expires_utc DATETIME(3), last_error LONGTEXT,
listened_seconds BIGINT NOT NULL DEFAULT 0, polled_in_turn_with LONGTEXT, not_stored INTEGER NOT NULL DEFAULT 0,
not_written INTEGER NOT NULL DEFAULT 0, CONSTRAINT delivery_accounts_pk PRIMARY KEY (fingerprint)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_tokens ( fingerprint VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
ciphertext LONGTEXT NOT NULL, issued_utc DATETIME(3) NOT NULL, expires_utc DATETIME(3) NOT NULL,
CONSTRAINT delivery_tokens_pk PRIMARY KEY (fingerprint) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_restaurants ( account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, name VARCHAR(255),
status VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, status_utc DATETIME(3),
service_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, status_since_utc DATETIME(3), status_by LONGTEXT,
CONSTRAINT delivery_restaurants_pk PRIMARY KEY (account, id) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_cancel_reasons ( id INTEGER NOT NULL, reason VARCHAR(255) NOT NULL,
CONSTRAINT delivery_cancel_reasons_pk PRIMARY KEY (id) )CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_payment_methods ( code VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
name VARCHAR(255) NOT NULL, CONSTRAINT delivery_payment_methods_pk PRIMARY KEY (code)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_shipping_methods ( code VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
name VARCHAR(255) NOT NULL, CONSTRAINT delivery_shipping_methods_pk PRIMARY KEY (code)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_quarantine ( id BIGINT NOT NULL AUTO_INCREMENT,
account VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, payload LONGTEXT NOT NULL,
payload_hash VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
reason VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, first_seen_utc DATETIME(3) NOT NULL,
last_seen_utc DATETIME(3) NOT NULL, times_seen INTEGER NOT NULL DEFAULT 1, resolved_utc DATETIME(3),
CONSTRAINT delivery_quarantine_pk PRIMARY KEY (id),
CONSTRAINT delivery_quarantine_account_uq UNIQUE (account, payload_hash)
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE INDEX delivery_quarantine_unresolved_ix ON delivery_quarantine (resolved_utc, id);
CREATE SQL SECURITY INVOKER VIEW delivery_alarms AS SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy
FROM delivery_problems WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= utc_timestamp(3)) UNION ALL SELECT 'not_polling', '', NULL, 'severe', 1, delivery_daemon.seen_utc, 1, delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_daemon WHERE delivery_daemon.silent_from_utc < utc_timestamp(3);
CREATE SQL SECURITY INVOKER VIEW delivery_lamp AS SELECT delivery_lamps.account, delivery_lamps.lamp, delivery_lamps.since_utc, delivery_lamps.code, delivery_lamps.sentence, delivery_lamps.remedy
FROM delivery_lamps WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= utc_timestamp(3)) UNION ALL SELECT delivery_lamps.account, 'red', delivery_daemon.seen_utc, 'not_polling', delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_lamps INNER JOIN delivery_daemon ON delivery_daemon.silent_from_utc < utc_timestamp(3);
CREATE TABLE delivery_order_items ( payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
line_no INTEGER NOT NULL, item_id VARCHAR(255), food_id BIGINT, name VARCHAR(255), note LONGTEXT, price NUMERIC(14, 4),
quantity NUMERIC(14, 4), total NUMERIC(14, 4), CONSTRAINT delivery_order_items_pk PRIMARY KEY (payment_key, line_no),
CONSTRAINT delivery_order_items_payment_key_fk FOREIGN KEY(payment_key) REFERENCES delivery_orders (payment_key) ON DELETE CASCADE
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE SQL SECURITY INVOKER VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_revision = 0 AND ended_utc IS NULL;
CREATE SQL SECURITY INVOKER VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_is_behind = 1;
CREATE SQL SECURITY INVOKER VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, CASE WHEN (ended_utc IS NULL AND delivery_orders.status_id = 1 AND NOT (EXISTS (SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND action IN ('accept', 'cancel') AND state IN ('pending', 'sending', 'done')))) THEN delivery_orders.received_utc END AS needs_answer_since, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE ended_utc IS NULL;
CREATE TABLE delivery_order_item_options ( payment_key VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
line_no INTEGER NOT NULL, option_no INTEGER NOT NULL, group_id BIGINT, group_name VARCHAR(255), type VARCHAR(255),
operation VARCHAR(255), option_id BIGINT, option_name VARCHAR(255), price NUMERIC(14, 4),
CONSTRAINT delivery_order_item_options_pk PRIMARY KEY (payment_key, line_no, option_no),
CONSTRAINT delivery_order_item_options_payment_key_fk FOREIGN KEY(payment_key, line_no) REFERENCES delivery_order_items (payment_key, line_no) ON DELETE CASCADE
)CHARSET=utf8mb4 ENGINE=InnoDB COLLATE utf8mb4_bin;
CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT delivery_schema_version_pkc PRIMARY KEY (version_num));
INSERT INTO delivery_schema_version VALUES ('0009');
COMMIT;
