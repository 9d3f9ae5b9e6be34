BEGIN;
CREATE TABLE delivery_problems ( code VARCHAR(64) NOT NULL, subject VARCHAR(255) NOT NULL, account VARCHAR(64),
severity VARCHAR(64) NOT NULL, level INTEGER NOT NULL, since_utc VARCHAR(23), how_many INTEGER NOT NULL,
cause TEXT NOT NULL, remedy TEXT NOT NULL, facts TEXT NOT NULL, told INTEGER NOT NULL, noted_utc VARCHAR(23) NOT NULL,
CONSTRAINT delivery_problems_pk PRIMARY KEY (code, subject) );
CREATE TRIGGER delivery_problems_guard_insert BEFORE INSERT ON delivery_problems WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_problems: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_problems_guard_delete BEFORE DELETE ON delivery_problems WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_problems: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_problems_guard_update BEFORE UPDATE ON delivery_problems WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_problems: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_daemon ( id INTEGER NOT NULL, seen_utc VARCHAR(23) NOT NULL, silent_from_utc VARCHAR(23) NOT NULL,
cause TEXT NOT NULL, remedy TEXT NOT NULL, CONSTRAINT delivery_daemon_pk PRIMARY KEY (id) );
CREATE TRIGGER delivery_daemon_guard_insert BEFORE INSERT ON delivery_daemon WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_daemon: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_daemon_guard_delete BEFORE DELETE ON delivery_daemon WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_daemon: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_daemon_guard_update BEFORE UPDATE ON delivery_daemon WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_daemon: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_books ( id VARCHAR(64) NOT NULL, older_since_utc VARCHAR(23), last_known_utc VARCHAR(23),
missing INTEGER, missing_numbers VARCHAR(64), generation INTEGER DEFAULT 0 NOT NULL,
CONSTRAINT delivery_books_pk PRIMARY KEY (id) );
CREATE TRIGGER delivery_books_guard_insert BEFORE INSERT ON delivery_books WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_books: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_books_guard_delete BEFORE DELETE ON delivery_books WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_books: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_books_guard_update BEFORE UPDATE ON delivery_books WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_books: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_lamps ( account VARCHAR(64) NOT NULL, lamp VARCHAR(64) NOT NULL, since_utc VARCHAR(23) NOT NULL,
code VARCHAR(64), sentence TEXT NOT NULL, remedy TEXT, CONSTRAINT delivery_lamps_pk PRIMARY KEY (account) );
CREATE TRIGGER delivery_lamps_guard_insert BEFORE INSERT ON delivery_lamps WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_lamps: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_lamps_guard_delete BEFORE DELETE ON delivery_lamps WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_lamps: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_lamps_guard_update BEFORE UPDATE ON delivery_lamps WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_lamps: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_board_devices ( id VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL, role VARCHAR(64) NOT NULL,
cookie_hash VARCHAR(64) NOT NULL, paired_utc VARCHAR(23) NOT NULL, seen_utc VARCHAR(23) NOT NULL,
revoked_utc VARCHAR(23), CONSTRAINT delivery_board_devices_pk PRIMARY KEY (id) );
CREATE UNIQUE INDEX delivery_board_devices_cookie_ix ON delivery_board_devices (cookie_hash);
CREATE TRIGGER delivery_board_devices_guard_insert BEFORE INSERT ON delivery_board_devices WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_devices: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_devices_guard_delete BEFORE DELETE ON delivery_board_devices WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_devices: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_devices_guard_update BEFORE UPDATE ON delivery_board_devices WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_devices: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_board_pairing ( id INTEGER NOT NULL, code_hash VARCHAR(64) NOT NULL, role VARCHAR(64) NOT NULL,
expires_utc VARCHAR(23) NOT NULL, tries_left INTEGER NOT NULL, CONSTRAINT delivery_board_pairing_pk PRIMARY KEY (id) );
CREATE TRIGGER delivery_board_pairing_guard_insert BEFORE INSERT ON delivery_board_pairing WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_pairing: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_pairing_guard_delete BEFORE DELETE ON delivery_board_pairing WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_pairing: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_pairing_guard_update BEFORE UPDATE ON delivery_board_pairing WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_pairing: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_board_silenced ( subject VARCHAR(255) NOT NULL, device VARCHAR(255) NOT NULL,
at_utc VARCHAR(23) NOT NULL, CONSTRAINT delivery_board_silenced_pk PRIMARY KEY (subject) );
CREATE INDEX delivery_board_silenced_at_ix ON delivery_board_silenced (at_utc);
CREATE TRIGGER delivery_board_silenced_guard_insert BEFORE INSERT ON delivery_board_silenced WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_silenced: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_silenced_guard_delete BEFORE DELETE ON delivery_board_silenced WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_silenced: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_silenced_guard_update BEFORE UPDATE ON delivery_board_silenced WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_silenced: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_board_slots ( account VARCHAR(64) NOT NULL, slot_utc VARCHAR(23) NOT NULL,
polls INTEGER DEFAULT 0 NOT NULL, failed INTEGER DEFAULT 0 NOT NULL, logins INTEGER DEFAULT 0 NOT NULL,
CONSTRAINT delivery_board_slots_pk PRIMARY KEY (account, slot_utc) );
CREATE INDEX delivery_board_slots_slot_ix ON delivery_board_slots (slot_utc);
CREATE TRIGGER delivery_board_slots_guard_insert BEFORE INSERT ON delivery_board_slots WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_slots: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_slots_guard_delete BEFORE DELETE ON delivery_board_slots WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_slots: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_board_slots_guard_update BEFORE UPDATE ON delivery_board_slots WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_board_slots: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_account_settings ( name VARCHAR(64) NOT NULL, fingerprint VARCHAR(64) NOT NULL, sealed TEXT,
key_id VARCHAR(64), enabled INTEGER NOT NULL, version INTEGER NOT NULL, changed_utc VARCHAR(23) NOT NULL,
CONSTRAINT delivery_account_settings_pk PRIMARY KEY (name),
CONSTRAINT delivery_account_settings_fingerprint_uq UNIQUE (fingerprint) );
CREATE TRIGGER delivery_account_settings_guard_insert BEFORE INSERT ON delivery_account_settings WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_account_settings: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_account_settings_guard_delete BEFORE DELETE ON delivery_account_settings WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_account_settings: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_account_settings_guard_update BEFORE UPDATE ON delivery_account_settings WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_account_settings: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_fleet ( id INTEGER NOT NULL, buckets INTEGER DEFAULT 64 NOT NULL,
accounts_version INTEGER DEFAULT 0 NOT NULL, CONSTRAINT delivery_fleet_pk PRIMARY KEY (id) );
INSERT INTO delivery_fleet (id) VALUES (1);
CREATE TRIGGER delivery_fleet_guard_insert BEFORE INSERT ON delivery_fleet WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_fleet: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_fleet_guard_delete BEFORE DELETE ON delivery_fleet WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_fleet: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_fleet_guard_update BEFORE UPDATE ON delivery_fleet WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_fleet: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_buckets ( bucket INTEGER NOT NULL, replica VARCHAR(64), taken_utc VARCHAR(23),
CONSTRAINT delivery_buckets_pk PRIMARY KEY (bucket) );
CREATE TRIGGER delivery_buckets_guard_insert BEFORE INSERT ON delivery_buckets WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_buckets: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_buckets_guard_delete BEFORE DELETE ON delivery_buckets WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_buckets: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_buckets_guard_update BEFORE UPDATE ON delivery_buckets WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_buckets: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_replicas ( replica VARCHAR(64) NOT NULL, number INTEGER NOT NULL,
epoch INTEGER DEFAULT 0 NOT NULL, node VARCHAR(64), started_utc VARCHAR(23) NOT NULL, problems TEXT,
CONSTRAINT delivery_replicas_pk PRIMARY KEY (replica) );
CREATE TRIGGER delivery_replicas_guard_insert BEFORE INSERT ON delivery_replicas WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_replicas: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_replicas_guard_delete BEFORE DELETE ON delivery_replicas WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_replicas: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_replicas_guard_update BEFORE UPDATE ON delivery_replicas WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_replicas: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_orders ( payment_key VARCHAR(36) NOT NULL, account VARCHAR(64) NOT NULL, order_number INTEGER,
status_id INTEGER, status VARCHAR(64) NOT NULL, status_text VARCHAR(255), restaurant_id VARCHAR(255),
restaurant_name VARCHAR(255), shipping_method VARCHAR(255), payment_method VARCHAR(255), payment_code VARCHAR(64),
amount_due NUMERIC(14, 4), note TEXT, total NUMERIC(14, 4), discount NUMERIC(14, 4), courier_type VARCHAR(255),
courier_fee NUMERIC(14, 4), order_tip NUMERIC(14, 4), ordered_at VARCHAR(255), scheduled_for VARCHAR(255),
customer_name VARCHAR(255), customer_phone VARCHAR(255), address VARCHAR(255), address_description TEXT,
apartment_no VARCHAR(255), building_no VARCHAR(255), neighborhood_name VARCHAR(255), district_name VARCHAR(255),
city_name VARCHAR(255), payload TEXT, revision INTEGER DEFAULT 1 NOT NULL,
last_change VARCHAR(64) DEFAULT 'new' NOT NULL, service_status_id INTEGER, payload_hash VARCHAR(64),
received_utc VARCHAR(23) NOT NULL, changed_utc VARCHAR(23) NOT NULL, acknowledged_utc VARCHAR(23),
acknowledged_status_id INTEGER, ended_utc VARCHAR(23), ended_by VARCHAR(64), problem TEXT,
pos_revision INTEGER DEFAULT 0 NOT NULL, pos_reference VARCHAR(255), silence_from INTEGER, service_key VARCHAR(36),
pos_total NUMERIC(14, 4), contents_revision INTEGER DEFAULT 1 NOT NULL, start_utc VARCHAR(23), remarks TEXT,
CONSTRAINT delivery_orders_pk PRIMARY KEY (payment_key),
CONSTRAINT delivery_orders_pos_revision_integer CHECK (typeof(pos_revision) IN ('integer', 'null')),
CONSTRAINT delivery_orders_pos_revision_known CHECK (pos_revision >= 0 AND pos_revision <= revision),
CONSTRAINT delivery_orders_pos_total_number CHECK (typeof(pos_total) IN ('integer', 'real', 'null')) );
CREATE INDEX delivery_orders_taken_ix ON delivery_orders (silence_from) WHERE ended_utc IS NULL AND pos_revision > 0;
CREATE INDEX delivery_orders_open_ix ON delivery_orders (changed_utc) WHERE ended_utc IS NULL;
CREATE INDEX delivery_orders_changed_ix ON delivery_orders (changed_utc) WHERE pos_revision > 0 AND pos_revision < revision;
CREATE INDEX delivery_orders_contents_ix ON delivery_orders (ended_utc) WHERE payload IS NOT NULL;
CREATE INDEX delivery_orders_ended_ix ON delivery_orders (received_utc) WHERE ended_utc IS NOT NULL;
CREATE INDEX delivery_orders_new_ix ON delivery_orders (received_utc) WHERE pos_revision = 0 AND ended_utc IS NULL;
CREATE TRIGGER delivery_orders_guard_insert BEFORE INSERT ON delivery_orders WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_orders: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_orders_guard_delete BEFORE DELETE ON delivery_orders WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_orders: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_orders_guard_update BEFORE UPDATE OF payment_key, account, order_number, status_id, status, status_text, restaurant_id, restaurant_name, shipping_method, payment_method, payment_code, amount_due, note, total, discount, courier_type, courier_fee, order_tip, ordered_at, scheduled_for, customer_name, customer_phone, address, address_description, apartment_no, building_no, neighborhood_name, district_name, city_name, payload, revision, last_change, service_status_id, payload_hash, received_utc, changed_utc, acknowledged_utc, acknowledged_status_id, ended_utc, ended_by, problem, silence_from, service_key, contents_revision, start_utc, remarks ON delivery_orders WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_orders: a POS changes pos_revision, pos_reference and pos_total, and orderbridge all else; leave other columns out of the UPDATE'); END;
CREATE TABLE delivery_order_events ( id INTEGER NOT NULL, payment_key VARCHAR(36) NOT NULL, at_utc VARCHAR(23) NOT NULL,
event VARCHAR(64) NOT NULL, status_id INTEGER, status VARCHAR(64), detail TEXT,
CONSTRAINT delivery_order_events_pk PRIMARY KEY (id) );
CREATE INDEX delivery_order_events_order_ix ON delivery_order_events (payment_key, id);
CREATE TRIGGER delivery_order_events_guard_insert BEFORE INSERT ON delivery_order_events WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_events: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_events_guard_delete BEFORE DELETE ON delivery_order_events WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_events: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_events_guard_update BEFORE UPDATE ON delivery_order_events WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_events: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_actions ( id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, action VARCHAR(64) NOT NULL,
payment_key VARCHAR(36), restaurant_id VARCHAR(36), food_id INTEGER, account VARCHAR(64), preparing_time INTEGER,
reason_id INTEGER, valid_minutes INTEGER, request_id VARCHAR(64) DEFAULT (lower(hex(randomblob(16)))) NOT NULL,
created_by VARCHAR(255), withdraw INTEGER DEFAULT 0 NOT NULL,
created_utc VARCHAR(23) DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')) NOT NULL,
state VARCHAR(64) DEFAULT 'pending' NOT NULL, attempts INTEGER DEFAULT 0 NOT NULL, next_attempt_utc VARCHAR(23),
expires_utc VARCHAR(23), http_status INTEGER, error_code VARCHAR(64), error_text TEXT, known_by VARCHAR(64),
finished_utc VARCHAR(23), CONSTRAINT delivery_actions_request_id_uq UNIQUE (request_id),
CONSTRAINT delivery_actions_action_known CHECK (action IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')),
CONSTRAINT delivery_actions_state_known CHECK (state IN ('pending', 'sending', 'done', 'refused', 'failed', 'expired', 'superseded', 'withdrawn')),
CONSTRAINT delivery_actions_order_action_names_its_order CHECK (NOT (action IN ('accept', 'on_the_way', 'complete', 'cancel')) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_restaurant_action_names_its_restaurant CHECK (NOT (action IN ('open_restaurant', 'close_restaurant')) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)),
CONSTRAINT delivery_actions_food_action_names_its_food CHECK (NOT (action IN ('activate_food', 'deactivate_food')) OR (food_id IS NOT NULL AND payment_key IS NULL)),
CONSTRAINT delivery_actions_accept_needs_preparing_time_1_to_1440 CHECK ((action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440) OR (action <> 'accept' AND preparing_time IS NULL)),
CONSTRAINT delivery_actions_cancel_needs_reason_id_1_to_8 CHECK ((action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8) OR (action <> 'cancel' AND reason_id IS NULL)),
CONSTRAINT delivery_actions_valid_minutes_1_to_10080 CHECK (valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080),
CONSTRAINT delivery_actions_food_id_1_or_more CHECK (food_id IS NULL OR food_id >= 1),
CONSTRAINT delivery_actions_withdraw_0_or_1 CHECK (withdraw IN (0, 1)),
CONSTRAINT delivery_actions_food_id_integer CHECK (typeof(food_id) IN ('integer', 'null')),
CONSTRAINT delivery_actions_preparing_time_integer CHECK (typeof(preparing_time) IN ('integer', 'null')),
CONSTRAINT delivery_actions_reason_id_integer CHECK (typeof(reason_id) IN ('integer', 'null')),
CONSTRAINT delivery_actions_valid_minutes_integer CHECK (typeof(valid_minutes) IN ('integer', 'null')),
CONSTRAINT delivery_actions_withdraw_integer CHECK (typeof(withdraw) IN ('integer', 'null')),
CONSTRAINT delivery_actions_request_id_1_to_64_characters CHECK (length(request_id) BETWEEN 1 AND 64),
CONSTRAINT delivery_actions_payment_key_uuid CHECK (payment_key IS NULL OR payment_key GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]' AND length(CAST(payment_key AS BLOB)) = 36),
CONSTRAINT delivery_actions_restaurant_id_uuid CHECK (restaurant_id IS NULL OR restaurant_id GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]' AND length(CAST(restaurant_id AS BLOB)) = 36)
);
CREATE INDEX delivery_actions_finished_ix ON delivery_actions (finished_utc);
CREATE INDEX delivery_actions_withdraw_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending') AND withdraw = 1;
CREATE INDEX delivery_actions_failed_ix ON delivery_actions (finished_utc) WHERE state = 'failed';
CREATE INDEX delivery_actions_unfinished_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending');
CREATE INDEX delivery_actions_payment_key_ix ON delivery_actions (payment_key, id);
CREATE TRIGGER delivery_actions_insert BEFORE INSERT ON delivery_actions WHEN NEW.state <> 'pending' OR NEW.attempts <> 0 OR coalesce(NEW.next_attempt_utc, NEW.expires_utc, NEW.http_status, NEW.error_code, NEW.error_text, NEW.known_by, NEW.finished_utc) IS NOT NULL BEGIN SELECT RAISE(ABORT, 'delivery_actions: state, attempts, next_attempt_utc, expires_utc, http_status, error_code, error_text, known_by and finished_utc are written by orderbridge; leave them out'); END;
CREATE TRIGGER delivery_actions_update BEFORE UPDATE OF id, action, payment_key, restaurant_id, food_id, account, preparing_time, reason_id, valid_minutes, request_id, created_by, created_utc ON delivery_actions WHEN NEW.id IS NOT OLD.id OR NEW.action IS NOT OLD.action OR NEW.payment_key IS NOT OLD.payment_key OR NEW.restaurant_id IS NOT OLD.restaurant_id OR NEW.food_id IS NOT OLD.food_id OR NEW.account IS NOT OLD.account OR NEW.preparing_time IS NOT OLD.preparing_time OR NEW.reason_id IS NOT OLD.reason_id OR NEW.valid_minutes IS NOT OLD.valid_minutes OR NEW.request_id IS NOT OLD.request_id OR NEW.created_by IS NOT OLD.created_by OR NEW.created_utc IS NOT OLD.created_utc BEGIN SELECT RAISE(ABORT, 'delivery_actions: of a row that is written only withdraw is changed; set withdraw = 1 and insert another row'); END;
CREATE TRIGGER delivery_actions_guard_insert BEFORE INSERT ON delivery_actions WHEN (SELECT open FROM delivery_guard) = 0 AND (NEW.id <> -1 OR NEW.created_utc IS NOT strftime('%Y-%m-%d %H:%M:%f', 'now')) BEGIN SELECT RAISE(ABORT, 'delivery_actions: id and created_utc are filled in by themselves; leave them out of the INSERT'); END;
CREATE TRIGGER delivery_actions_guard_replace AFTER INSERT ON delivery_actions WHEN (SELECT open FROM delivery_guard) = 0 AND (NOT EXISTS (SELECT 1 FROM delivery_actions WHERE id = coalesce((SELECT again_id FROM delivery_guard), NEW.id))) BEGIN SELECT RAISE(ABORT, 'delivery_actions: REPLACE would take away a row that is written; use INSERT, or INSERT OR IGNORE, instead'); END;
CREATE TRIGGER delivery_actions_guard_delete BEFORE DELETE ON delivery_actions WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_actions: DELETE is for orderbridge alone; set withdraw = 1 to take a row back'); END;
CREATE TRIGGER delivery_actions_guard_written BEFORE UPDATE OF id, action, payment_key, restaurant_id, food_id, account, preparing_time, reason_id, valid_minutes, request_id, created_by, created_utc ON delivery_actions WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_actions: of a row that is written only withdraw is changed; set withdraw = 1 and insert another row'); END;
CREATE TRIGGER delivery_actions_guard_update BEFORE UPDATE OF state, attempts, next_attempt_utc, expires_utc, http_status, error_code, error_text, known_by, finished_utc ON delivery_actions WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_actions: a POS changes withdraw, and orderbridge all else; leave other columns out of the UPDATE'); END;
CREATE TABLE delivery_action_attempts ( action_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
started_utc VARCHAR(23) NOT NULL, finished_utc VARCHAR(23), outcome VARCHAR(64), spent INTEGER DEFAULT 0 NOT NULL,
http_status INTEGER, error_code VARCHAR(64), detail TEXT,
CONSTRAINT delivery_action_attempts_pk PRIMARY KEY (action_id, attempt) );
CREATE TRIGGER delivery_action_attempts_guard_insert BEFORE INSERT ON delivery_action_attempts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_action_attempts: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_action_attempts_guard_delete BEFORE DELETE ON delivery_action_attempts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_action_attempts: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_action_attempts_guard_update BEFORE UPDATE ON delivery_action_attempts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_action_attempts: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_accounts ( fingerprint VARCHAR(64) NOT NULL, name VARCHAR(64) NOT NULL,
state VARCHAR(64) DEFAULT 'new' NOT NULL, last_poll_utc VARCHAR(23), last_poll_ok_utc VARCHAR(23),
next_poll_utc VARCHAR(23), token_expires_utc VARCHAR(23), last_error TEXT, listened_seconds INTEGER DEFAULT 0 NOT NULL,
polled_in_turn_with TEXT, not_stored INTEGER DEFAULT 0 NOT NULL, not_written INTEGER DEFAULT 0 NOT NULL,
CONSTRAINT delivery_accounts_pk PRIMARY KEY (fingerprint) );
CREATE TABLE delivery_guard (id INTEGER NOT NULL CONSTRAINT delivery_guard_pk PRIMARY KEY, open INTEGER DEFAULT 0 NOT NULL, again_id INTEGER, CONSTRAINT delivery_guard_one_row CHECK (id = 1), CONSTRAINT delivery_guard_open_0_or_more CHECK (typeof(open) = 'integer' AND open >= 0));
INSERT INTO delivery_guard (id) VALUES (1);
CREATE TRIGGER delivery_guard_again BEFORE INSERT ON delivery_actions WHEN EXISTS (SELECT 1 FROM delivery_actions WHERE request_id = NEW.request_id) BEGIN UPDATE delivery_guard SET again_id = (SELECT id FROM delivery_actions WHERE request_id = NEW.request_id); END;
CREATE TRIGGER delivery_guard_gone AFTER DELETE ON delivery_actions WHEN OLD.id = (SELECT again_id FROM delivery_guard) BEGIN UPDATE delivery_guard SET again_id = NULL; END;
CREATE TRIGGER delivery_guard_stays BEFORE DELETE ON delivery_guard WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_guard: DELETE is for orderbridge alone; leave its one row'); END;
CREATE TRIGGER delivery_accounts_guard_insert BEFORE INSERT ON delivery_accounts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_accounts: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_accounts_guard_delete BEFORE DELETE ON delivery_accounts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_accounts: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_accounts_guard_update BEFORE UPDATE ON delivery_accounts WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_accounts: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_tokens ( fingerprint VARCHAR(64) NOT NULL, ciphertext TEXT NOT NULL,
issued_utc VARCHAR(23) NOT NULL, expires_utc VARCHAR(23) NOT NULL,
CONSTRAINT delivery_tokens_pk PRIMARY KEY (fingerprint) );
CREATE TRIGGER delivery_tokens_guard_insert BEFORE INSERT ON delivery_tokens WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_tokens: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_tokens_guard_delete BEFORE DELETE ON delivery_tokens WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_tokens: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_tokens_guard_update BEFORE UPDATE ON delivery_tokens WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_tokens: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_restaurants ( account VARCHAR(64) NOT NULL, id VARCHAR(255) NOT NULL, name VARCHAR(255),
status VARCHAR(64), status_utc VARCHAR(23), service_id VARCHAR(255), status_since_utc VARCHAR(23), status_by TEXT,
CONSTRAINT delivery_restaurants_pk PRIMARY KEY (account, id) );
CREATE TRIGGER delivery_restaurants_guard_insert BEFORE INSERT ON delivery_restaurants WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_restaurants: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_restaurants_guard_delete BEFORE DELETE ON delivery_restaurants WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_restaurants: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_restaurants_guard_update BEFORE UPDATE ON delivery_restaurants WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_restaurants: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_cancel_reasons ( id INTEGER NOT NULL, reason VARCHAR(255) NOT NULL,
CONSTRAINT delivery_cancel_reasons_pk PRIMARY KEY (id) );
CREATE TRIGGER delivery_cancel_reasons_guard_insert BEFORE INSERT ON delivery_cancel_reasons WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_cancel_reasons: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_cancel_reasons_guard_delete BEFORE DELETE ON delivery_cancel_reasons WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_cancel_reasons: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_cancel_reasons_guard_update BEFORE UPDATE ON delivery_cancel_reasons WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_cancel_reasons: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_payment_methods ( code VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
CONSTRAINT delivery_payment_methods_pk PRIMARY KEY (code) );
CREATE TRIGGER delivery_payment_methods_guard_insert BEFORE INSERT ON delivery_payment_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_payment_methods: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_payment_methods_guard_delete BEFORE DELETE ON delivery_payment_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_payment_methods: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_payment_methods_guard_update BEFORE UPDATE ON delivery_payment_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_payment_methods: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_shipping_methods ( code VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL,
CONSTRAINT delivery_shipping_methods_pk PRIMARY KEY (code) );
CREATE TRIGGER delivery_shipping_methods_guard_insert BEFORE INSERT ON delivery_shipping_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_shipping_methods: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_shipping_methods_guard_delete BEFORE DELETE ON delivery_shipping_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_shipping_methods: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_shipping_methods_guard_update BEFORE UPDATE ON delivery_shipping_methods WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_shipping_methods: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_quarantine ( id INTEGER NOT NULL, account VARCHAR(64) NOT NULL, payment_key VARCHAR(36),
payload TEXT NOT NULL, payload_hash VARCHAR(64) NOT NULL, reason VARCHAR(64) NOT NULL,
first_seen_utc VARCHAR(23) NOT NULL, last_seen_utc VARCHAR(23) NOT NULL, times_seen INTEGER DEFAULT 1 NOT NULL,
resolved_utc VARCHAR(23), CONSTRAINT delivery_quarantine_pk PRIMARY KEY (id),
CONSTRAINT delivery_quarantine_account_uq UNIQUE (account, payload_hash) );
CREATE INDEX delivery_quarantine_unresolved_ix ON delivery_quarantine (id) WHERE resolved_utc IS NULL;
CREATE TRIGGER delivery_quarantine_guard_insert BEFORE INSERT ON delivery_quarantine WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_quarantine: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_quarantine_guard_delete BEFORE DELETE ON delivery_quarantine WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_quarantine: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_quarantine_guard_update BEFORE UPDATE ON delivery_quarantine WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_quarantine: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE VIEW delivery_alarms AS SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy
FROM delivery_problems WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= strftime('%Y-%m-%d %H:%M:%f', 'now')) UNION ALL SELECT 'not_polling', '', NULL, 'severe', 1, delivery_daemon.seen_utc, 1, delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_daemon WHERE delivery_daemon.silent_from_utc < strftime('%Y-%m-%d %H:%M:%f', 'now');
CREATE VIEW delivery_lamp AS SELECT delivery_lamps.account, delivery_lamps.lamp, delivery_lamps.since_utc, delivery_lamps.code, delivery_lamps.sentence, delivery_lamps.remedy
FROM delivery_lamps WHERE EXISTS (SELECT delivery_daemon.id FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= strftime('%Y-%m-%d %H:%M:%f', 'now')) UNION ALL SELECT delivery_lamps.account, 'red', delivery_daemon.seen_utc, 'not_polling', delivery_daemon.cause, delivery_daemon.remedy
FROM delivery_lamps JOIN delivery_daemon ON delivery_daemon.silent_from_utc < strftime('%Y-%m-%d %H:%M:%f', 'now');
CREATE TABLE delivery_order_items ( payment_key VARCHAR(36) NOT NULL, line_no INTEGER NOT NULL, item_id VARCHAR(255),
food_id INTEGER, name VARCHAR(255), note TEXT, price NUMERIC(14, 4), quantity NUMERIC(14, 4), total NUMERIC(14, 4),
CONSTRAINT delivery_order_items_pk PRIMARY KEY (payment_key, line_no),
CONSTRAINT delivery_order_items_payment_key_fk FOREIGN KEY(payment_key) REFERENCES delivery_orders (payment_key) ON DELETE CASCADE
);
CREATE TRIGGER delivery_order_items_guard_insert BEFORE INSERT ON delivery_order_items WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_items: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_items_guard_delete BEFORE DELETE ON delivery_order_items WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_items: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_items_guard_update BEFORE UPDATE ON delivery_order_items WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_items: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_revision = 0 AND ended_utc IS NULL;
CREATE VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE pos_revision > 0 AND pos_revision < revision;
CREATE VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, CASE WHEN (ended_utc IS NULL AND delivery_orders.status_id = 1 AND NOT (EXISTS (SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND action IN ('accept', 'cancel') AND state IN ('pending', 'sending', 'done')))) THEN delivery_orders.received_utc END AS needs_answer_since, delivery_orders.start_utc, delivery_orders.remarks
FROM delivery_orders WHERE ended_utc IS NULL;
CREATE TABLE delivery_order_item_options ( payment_key VARCHAR(36) NOT NULL, line_no INTEGER NOT NULL,
option_no INTEGER NOT NULL, group_id INTEGER, group_name VARCHAR(255), type VARCHAR(255), operation VARCHAR(255),
option_id INTEGER, option_name VARCHAR(255), price NUMERIC(14, 4),
CONSTRAINT delivery_order_item_options_pk PRIMARY KEY (payment_key, line_no, option_no),
CONSTRAINT delivery_order_item_options_payment_key_fk FOREIGN KEY(payment_key, line_no) REFERENCES delivery_order_items (payment_key, line_no) ON DELETE CASCADE
);
CREATE TRIGGER delivery_order_item_options_guard_insert BEFORE INSERT ON delivery_order_item_options WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_item_options: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_item_options_guard_delete BEFORE DELETE ON delivery_order_item_options WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_item_options: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_order_item_options_guard_update BEFORE UPDATE ON delivery_order_item_options WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_order_item_options: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TABLE delivery_schema_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT delivery_schema_version_pkc PRIMARY KEY (version_num));
INSERT INTO delivery_schema_version VALUES ('0009');
CREATE TRIGGER delivery_schema_version_guard_insert BEFORE INSERT ON delivery_schema_version WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_schema_version: INSERT is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_schema_version_guard_delete BEFORE DELETE ON delivery_schema_version WHEN (SELECT open FROM delivery_guard) = 0 BEGIN SELECT RAISE(ABORT, 'delivery_schema_version: DELETE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
CREATE TRIGGER delivery_schema_version_guard_update BEFORE UPDATE ON delivery_schema_version WHEN (SELECT open FROM delivery_guard) = 0 AND (OLD.version_num >= '0009') BEGIN SELECT RAISE(ABORT, 'delivery_schema_version: UPDATE is for orderbridge alone; read this table, and keep what is yours in tables of your own'); END;
COMMIT;
