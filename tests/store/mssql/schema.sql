BEGIN TRANSACTION;

CREATE TABLE delivery_schema_version (
    version_num VARCHAR(32) NOT NULL, 
    CONSTRAINT delivery_schema_version_pkc PRIMARY KEY (version_num)
);

GO

-- Running upgrade  -> 0001

CREATE TABLE delivery_accounts (
    fingerprint NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    name NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    state NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL DEFAULT 'new', 
    last_poll_utc DATETIME2(3) NULL, 
    last_poll_ok_utc DATETIME2(3) NULL, 
    next_poll_utc DATETIME2(3) NULL, 
    token_expires_utc DATETIME2(3) NULL, 
    last_error NVARCHAR(max) NULL, 
    lease_owner NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    lease_expires_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_accounts_pk PRIMARY KEY (fingerprint)
);

GO

CREATE TABLE delivery_action_attempts (
    action_id BIGINT NOT NULL, 
    attempt INTEGER NOT NULL, 
    started_utc DATETIME2(3) NOT NULL, 
    finished_utc DATETIME2(3) NULL, 
    outcome NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    spent INTEGER NOT NULL DEFAULT 0, 
    http_status INTEGER NULL, 
    error_code NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    detail NVARCHAR(max) NULL, 
    CONSTRAINT delivery_action_attempts_pk PRIMARY KEY (action_id, attempt)
);

GO

CREATE TABLE delivery_actions (
    id BIGINT NOT NULL IDENTITY, 
    action NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NULL, 
    restaurant_id NVARCHAR(36) COLLATE Latin1_General_BIN2 NULL, 
    food_id NUMERIC(21, 2) NULL, 
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    preparing_time NUMERIC(21, 2) NULL, 
    reason_id NUMERIC(21, 2) NULL, 
    valid_minutes NUMERIC(21, 2) NULL, 
    request_id NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL DEFAULT CONVERT(nvarchar(36), NEWID()), 
    created_by NVARCHAR(255) NULL, 
    withdraw INTEGER NOT NULL DEFAULT 0, 
    created_utc DATETIME2(3) NOT NULL DEFAULT SYSUTCDATETIME(), 
    state NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL DEFAULT 'pending', 
    attempts INTEGER NOT NULL DEFAULT 0, 
    next_attempt_utc DATETIME2(3) NULL, 
    expires_utc DATETIME2(3) NULL, 
    http_status INTEGER NULL, 
    error_code NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    error_text NVARCHAR(max) NULL, 
    known_by NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    finished_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_actions_pk PRIMARY KEY (id), 
    CONSTRAINT delivery_actions_request_id_uq UNIQUE (request_id), 
    CONSTRAINT delivery_actions_action_known CHECK (action IN ('accept', 'on_the_way', 'complete', 'cancel', 'open_restaurant', 'close_restaurant', 'activate_food', 'deactivate_food')), 
    CONSTRAINT delivery_actions_state_known CHECK (state IN ('pending', 'sending', 'done', 'refused', 'failed', 'expired', 'superseded', 'withdrawn')), 
    CONSTRAINT delivery_actions_order_action_names_its_order CHECK (NOT (action IN ('accept', 'on_the_way', 'complete', 'cancel')) OR (payment_key IS NOT NULL AND restaurant_id IS NULL AND food_id IS NULL)), 
    CONSTRAINT delivery_actions_restaurant_action_names_its_restaurant CHECK (NOT (action IN ('open_restaurant', 'close_restaurant')) OR (restaurant_id IS NOT NULL AND payment_key IS NULL AND food_id IS NULL)), 
    CONSTRAINT delivery_actions_food_action_names_its_food CHECK (NOT (action IN ('activate_food', 'deactivate_food')) OR (food_id IS NOT NULL AND payment_key IS NULL)), 
    CONSTRAINT delivery_actions_accept_needs_preparing_time_1_to_1440 CHECK ((action = 'accept' AND preparing_time IS NOT NULL AND preparing_time BETWEEN 1 AND 1440) OR (action <> 'accept' AND preparing_time IS NULL)), 
    CONSTRAINT delivery_actions_cancel_needs_reason_id_1_to_8 CHECK ((action = 'cancel' AND reason_id IS NOT NULL AND reason_id BETWEEN 1 AND 8) OR (action <> 'cancel' AND reason_id IS NULL)), 
    CONSTRAINT delivery_actions_valid_minutes_1_to_10080 CHECK (valid_minutes IS NULL OR valid_minutes BETWEEN 1 AND 10080), 
    CONSTRAINT delivery_actions_withdraw_0_or_1 CHECK (withdraw IN (0, 1)), 
    CONSTRAINT delivery_actions_food_id_integer CHECK (food_id IS NULL OR (food_id = floor(food_id) AND food_id BETWEEN -9223372036854775808 AND 9223372036854775807)), 
    CONSTRAINT delivery_actions_preparing_time_integer CHECK (preparing_time IS NULL OR (preparing_time = floor(preparing_time) AND preparing_time BETWEEN -9223372036854775808 AND 9223372036854775807)), 
    CONSTRAINT delivery_actions_reason_id_integer CHECK (reason_id IS NULL OR (reason_id = floor(reason_id) AND reason_id BETWEEN -9223372036854775808 AND 9223372036854775807)), 
    CONSTRAINT delivery_actions_valid_minutes_integer CHECK (valid_minutes IS NULL OR (valid_minutes = floor(valid_minutes) AND valid_minutes BETWEEN -9223372036854775808 AND 9223372036854775807)), 
    CONSTRAINT delivery_actions_request_id_1_to_64_characters CHECK (len(request_id) BETWEEN 1 AND 64), 
    CONSTRAINT delivery_actions_payment_key_uuid CHECK (payment_key IS NULL OR payment_key LIKE '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'), 
    CONSTRAINT delivery_actions_restaurant_id_uuid CHECK (restaurant_id IS NULL OR restaurant_id LIKE '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]')
);

GO

CREATE INDEX delivery_actions_payment_key_ix ON delivery_actions (payment_key, id);

GO

CREATE INDEX delivery_actions_unfinished_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending');

GO

CREATE TABLE delivery_cancel_reasons (
    id INTEGER NOT NULL, 
    reason NVARCHAR(255) NOT NULL, 
    CONSTRAINT delivery_cancel_reasons_pk PRIMARY KEY (id)
);

GO

CREATE TABLE delivery_order_events (
    id BIGINT NOT NULL IDENTITY, 
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NOT NULL, 
    at_utc DATETIME2(3) NOT NULL, 
    event NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    status_id INTEGER NULL, 
    status NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    detail NVARCHAR(max) NULL, 
    CONSTRAINT delivery_order_events_pk PRIMARY KEY (id)
);

GO

CREATE INDEX delivery_order_events_order_ix ON delivery_order_events (payment_key, id);

GO

CREATE TABLE delivery_orders (
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NOT NULL, 
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    order_number BIGINT NULL, 
    status_id INTEGER NULL, 
    status NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    status_text NVARCHAR(255) NULL, 
    restaurant_id NVARCHAR(255) COLLATE Latin1_General_BIN2 NULL, 
    restaurant_name NVARCHAR(255) NULL, 
    shipping_method NVARCHAR(255) NULL, 
    payment_method NVARCHAR(255) NULL, 
    payment_code NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    amount_due NUMERIC(14, 4) NULL, 
    note NVARCHAR(max) NULL, 
    total NUMERIC(14, 4) NULL, 
    discount NUMERIC(14, 4) NULL, 
    courier_type NVARCHAR(255) NULL, 
    courier_fee NUMERIC(14, 4) NULL, 
    order_tip NUMERIC(14, 4) NULL, 
    ordered_at NVARCHAR(255) NULL, 
    scheduled_for NVARCHAR(255) NULL, 
    customer_name NVARCHAR(255) NULL, 
    customer_phone NVARCHAR(255) NULL, 
    address NVARCHAR(255) NULL, 
    address_description NVARCHAR(max) NULL, 
    apartment_no NVARCHAR(255) NULL, 
    building_no NVARCHAR(255) NULL, 
    neighborhood_name NVARCHAR(255) NULL, 
    district_name NVARCHAR(255) NULL, 
    city_name NVARCHAR(255) NULL, 
    payload NVARCHAR(max) NULL, 
    revision INTEGER NOT NULL DEFAULT 1, 
    last_change NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL DEFAULT 'new', 
    service_status_id INTEGER NULL, 
    payload_hash NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    received_utc DATETIME2(3) NOT NULL, 
    changed_utc DATETIME2(3) NOT NULL, 
    acknowledged_utc DATETIME2(3) NULL, 
    acknowledged_status_id INTEGER NULL, 
    ended_utc DATETIME2(3) NULL, 
    ended_by NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    problem NVARCHAR(max) NULL, 
    pos_revision INTEGER NOT NULL DEFAULT 0, 
    pos_reference NVARCHAR(255) COLLATE Latin1_General_BIN2 NULL, 
    CONSTRAINT delivery_orders_pk PRIMARY KEY (payment_key), 
    CONSTRAINT delivery_orders_pos_revision_known CHECK (pos_revision >= 0 AND pos_revision <= revision)
);

GO

CREATE INDEX delivery_orders_new_ix ON delivery_orders (received_utc) WHERE pos_revision = 0 AND ended_utc IS NULL;

GO

CREATE INDEX delivery_orders_open_ix ON delivery_orders (changed_utc) WHERE ended_utc IS NULL;

GO

ALTER TABLE delivery_orders ADD pos_is_behind AS (CASE WHEN pos_revision > 0 AND pos_revision < revision THEN 1 END) PERSISTED, contents_ended_utc AS (CASE WHEN payload IS NOT NULL THEN ended_utc END) PERSISTED;

GO

CREATE INDEX delivery_orders_changed_ix ON delivery_orders (pos_is_behind, changed_utc);

GO

CREATE INDEX delivery_orders_contents_ix ON delivery_orders (contents_ended_utc);

GO

CREATE TABLE delivery_payment_methods (
    code NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, 
    name NVARCHAR(255) NOT NULL, 
    CONSTRAINT delivery_payment_methods_pk PRIMARY KEY (code)
);

GO

CREATE TABLE delivery_quarantine (
    id BIGINT NOT NULL IDENTITY, 
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NULL, 
    payload NVARCHAR(max) NOT NULL, 
    payload_hash NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    reason NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    first_seen_utc DATETIME2(3) NOT NULL, 
    last_seen_utc DATETIME2(3) NOT NULL, 
    times_seen INTEGER NOT NULL DEFAULT 1, 
    resolved_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_quarantine_pk PRIMARY KEY (id), 
    CONSTRAINT delivery_quarantine_account_uq UNIQUE (account, payload_hash)
);

GO

CREATE INDEX delivery_quarantine_unresolved_ix ON delivery_quarantine (id) WHERE resolved_utc IS NULL;

GO

CREATE TABLE delivery_restaurants (
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    id NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, 
    name NVARCHAR(255) NULL, 
    status NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    status_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_restaurants_pk PRIMARY KEY (account, id)
);

GO

CREATE TABLE delivery_shipping_methods (
    code NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, 
    name NVARCHAR(255) NOT NULL, 
    CONSTRAINT delivery_shipping_methods_pk PRIMARY KEY (code)
);

GO

CREATE TABLE delivery_tokens (
    fingerprint NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    ciphertext NVARCHAR(max) NOT NULL, 
    issued_utc DATETIME2(3) NOT NULL, 
    expires_utc DATETIME2(3) NOT NULL, 
    CONSTRAINT delivery_tokens_pk PRIMARY KEY (fingerprint)
);

GO

CREATE TABLE delivery_order_items (
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NOT NULL, 
    line_no INTEGER NOT NULL, 
    item_id NVARCHAR(255) NULL, 
    food_id BIGINT NULL, 
    name NVARCHAR(255) NULL, 
    note NVARCHAR(max) NULL, 
    price NUMERIC(14, 4) NULL, 
    quantity BIGINT NULL, 
    total NUMERIC(14, 4) NULL, 
    CONSTRAINT delivery_order_items_pk PRIMARY KEY (payment_key, line_no), 
    CONSTRAINT delivery_order_items_payment_key_fk FOREIGN KEY(payment_key) REFERENCES delivery_orders (payment_key) ON DELETE CASCADE
);

GO

CREATE TABLE delivery_order_item_options (
    payment_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NOT NULL, 
    line_no INTEGER NOT NULL, 
    option_no INTEGER NOT NULL, 
    group_id BIGINT NULL, 
    group_name NVARCHAR(255) NULL, 
    type NVARCHAR(255) NULL, 
    operation NVARCHAR(255) NULL, 
    option_id BIGINT NULL, 
    option_name NVARCHAR(255) NULL, 
    price NUMERIC(14, 4) NULL, 
    CONSTRAINT delivery_order_item_options_pk PRIMARY KEY (payment_key, line_no, option_no), 
    CONSTRAINT delivery_order_item_options_payment_key_fk FOREIGN KEY(payment_key, line_no) REFERENCES delivery_order_items (payment_key, line_no) ON DELETE CASCADE
);

GO

CREATE VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference 
FROM delivery_orders 
WHERE pos_revision = 0 AND ended_utc IS NULL;

GO

CREATE VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference 
FROM delivery_orders 
WHERE pos_is_behind = 1;

GO

CREATE VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference 
FROM delivery_orders 
WHERE ended_utc IS NULL;

GO

INSERT INTO delivery_schema_version (version_num) OUTPUT inserted.version_num VALUES ('0001');

GO

-- Running upgrade 0001 -> 0002

CREATE INDEX delivery_actions_withdraw_ix ON delivery_actions (id) WHERE state IN ('pending', 'sending') AND withdraw = 1;

GO

UPDATE delivery_actions SET state = 'refused', error_code = 'bad_arguments', error_text = 'food_id is 1 or more.', finished_utc = SYSUTCDATETIME() WHERE food_id < 1 AND state IN ('pending', 'sending');

GO

ALTER TABLE delivery_actions ADD CONSTRAINT delivery_actions_food_id_1_or_more CHECK (food_id IS NULL OR food_id >= 1 OR state NOT IN ('pending', 'sending'));

GO

ALTER TABLE delivery_accounts ADD listened_seconds BIGINT NOT NULL DEFAULT 0;

GO

ALTER TABLE delivery_orders ADD silence_from BIGINT NULL;

GO

CREATE INDEX delivery_orders_taken_ix ON delivery_orders (silence_from) WHERE ended_utc IS NULL AND pos_revision > 0;

GO

ALTER TABLE delivery_accounts ADD polled_in_turn_with NVARCHAR(max) NULL;

GO

ALTER TABLE delivery_accounts ADD not_stored INTEGER NOT NULL DEFAULT 0;

GO

ALTER TABLE delivery_accounts ADD not_written INTEGER NOT NULL DEFAULT 0;

GO

ALTER TABLE delivery_orders ADD service_key NVARCHAR(36) COLLATE Latin1_General_BIN2 NULL;

GO

ALTER TABLE delivery_restaurants ADD service_id NVARCHAR(255) COLLATE Latin1_General_BIN2 NULL;

GO

CREATE INDEX delivery_actions_failed_ix ON delivery_actions (finished_utc) WHERE state = 'failed';

GO

UPDATE delivery_schema_version SET version_num='0002' WHERE delivery_schema_version.version_num = '0001';

GO

-- Running upgrade 0002 -> 0003

CREATE TABLE delivery_problems (
    code NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    subject NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, 
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    severity NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    level INTEGER NOT NULL, 
    since_utc DATETIME2(3) NULL, 
    how_many INTEGER NOT NULL, 
    cause NVARCHAR(max) NOT NULL, 
    remedy NVARCHAR(max) NOT NULL, 
    facts NVARCHAR(max) NOT NULL, 
    told INTEGER NOT NULL, 
    noted_utc DATETIME2(3) NOT NULL, 
    CONSTRAINT delivery_problems_pk PRIMARY KEY (code, subject)
);

GO

CREATE TABLE delivery_daemon (
    id INTEGER NOT NULL, 
    seen_utc DATETIME2(3) NOT NULL, 
    silent_from_utc DATETIME2(3) NOT NULL, 
    cause NVARCHAR(max) NOT NULL, 
    remedy NVARCHAR(max) NOT NULL, 
    CONSTRAINT delivery_daemon_pk PRIMARY KEY (id)
);

GO

CREATE VIEW delivery_alarms AS SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy 
FROM delivery_problems 
WHERE EXISTS (SELECT delivery_daemon.id 
FROM delivery_daemon 
WHERE delivery_daemon.silent_from_utc >= SYSUTCDATETIME()) UNION ALL SELECT 'not_polling', '', NULL, 'severe', 1, delivery_daemon.seen_utc, 1, delivery_daemon.cause, delivery_daemon.remedy 
FROM delivery_daemon 
WHERE delivery_daemon.silent_from_utc < SYSUTCDATETIME();

GO

CREATE TABLE delivery_books (
    id NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    older_since_utc DATETIME2(3) NULL, 
    last_known_utc DATETIME2(3) NULL, 
    missing INTEGER NULL, 
    missing_numbers NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    CONSTRAINT delivery_books_pk PRIMARY KEY (id)
);

GO

ALTER TABLE delivery_orders ADD pos_total NUMERIC(14, 4) NULL;

GO

CREATE INDEX delivery_actions_finished_ix ON delivery_actions (finished_utc);

GO

CREATE INDEX delivery_orders_ended_ix ON delivery_orders (received_utc) WHERE ended_utc IS NOT NULL;

GO

CREATE OR ALTER VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total 
FROM delivery_orders 
WHERE pos_revision = 0 AND ended_utc IS NULL;

GO

CREATE OR ALTER VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total 
FROM delivery_orders 
WHERE pos_is_behind = 1;

GO

CREATE OR ALTER VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total 
FROM delivery_orders 
WHERE ended_utc IS NULL;

GO

UPDATE delivery_schema_version SET version_num='0003' WHERE delivery_schema_version.version_num = '0002';

GO

-- Running upgrade 0003 -> 0004

CREATE TABLE delivery_board_devices (
    id NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    name NVARCHAR(255) NOT NULL, 
    role NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    cookie_hash NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    paired_utc DATETIME2(3) NOT NULL, 
    seen_utc DATETIME2(3) NOT NULL, 
    revoked_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_board_devices_pk PRIMARY KEY (id)
);

GO

CREATE UNIQUE INDEX delivery_board_devices_cookie_ix ON delivery_board_devices (cookie_hash);

GO

CREATE TABLE delivery_board_pairing (
    id INTEGER NOT NULL, 
    code_hash NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    role NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    expires_utc DATETIME2(3) NOT NULL, 
    tries_left INTEGER NOT NULL, 
    CONSTRAINT delivery_board_pairing_pk PRIMARY KEY (id)
);

GO

CREATE TABLE delivery_board_silenced (
    subject NVARCHAR(255) COLLATE Latin1_General_BIN2 NOT NULL, 
    device NVARCHAR(255) NOT NULL, 
    at_utc DATETIME2(3) NOT NULL, 
    CONSTRAINT delivery_board_silenced_pk PRIMARY KEY (subject)
);

GO

CREATE INDEX delivery_board_silenced_at_ix ON delivery_board_silenced (at_utc);

GO

CREATE TABLE delivery_board_slots (
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    slot_utc DATETIME2(3) NOT NULL, 
    polls INTEGER NOT NULL DEFAULT 0, 
    failed INTEGER NOT NULL DEFAULT 0, 
    logins INTEGER NOT NULL DEFAULT 0, 
    CONSTRAINT delivery_board_slots_pk PRIMARY KEY (account, slot_utc)
);

GO

CREATE INDEX delivery_board_slots_slot_ix ON delivery_board_slots (slot_utc);

GO

UPDATE delivery_schema_version SET version_num='0004' WHERE delivery_schema_version.version_num = '0003';

GO

-- Running upgrade 0004 -> 0005

ALTER TABLE delivery_orders ADD contents_revision INTEGER NOT NULL DEFAULT 1;

GO

UPDATE delivery_orders SET contents_revision = revision WHERE last_change = 'contents';

GO

CREATE OR ALTER VIEW delivery_new_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision 
FROM delivery_orders 
WHERE pos_revision = 0 AND ended_utc IS NULL;

GO

CREATE OR ALTER VIEW delivery_changed_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision 
FROM delivery_orders 
WHERE pos_is_behind = 1;

GO

CREATE OR ALTER VIEW delivery_open_orders AS SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.order_number, delivery_orders.status_id, delivery_orders.status, delivery_orders.status_text, delivery_orders.restaurant_id, delivery_orders.restaurant_name, delivery_orders.shipping_method, delivery_orders.payment_method, delivery_orders.payment_code, delivery_orders.amount_due, delivery_orders.note, delivery_orders.total, delivery_orders.discount, delivery_orders.courier_type, delivery_orders.courier_fee, delivery_orders.order_tip, delivery_orders.ordered_at, delivery_orders.scheduled_for, delivery_orders.customer_name, delivery_orders.customer_phone, delivery_orders.address, delivery_orders.address_description, delivery_orders.apartment_no, delivery_orders.building_no, delivery_orders.neighborhood_name, delivery_orders.district_name, delivery_orders.city_name, delivery_orders.payload, delivery_orders.revision, delivery_orders.last_change, delivery_orders.service_status_id, delivery_orders.payload_hash, delivery_orders.received_utc, delivery_orders.changed_utc, delivery_orders.acknowledged_utc, delivery_orders.acknowledged_status_id, delivery_orders.ended_utc, delivery_orders.ended_by, delivery_orders.problem, delivery_orders.pos_revision, delivery_orders.pos_reference, delivery_orders.pos_total, delivery_orders.contents_revision, CASE WHEN (ended_utc IS NULL AND delivery_orders.status_id = 1 AND NOT (EXISTS (SELECT delivery_actions.id FROM delivery_actions WHERE delivery_actions.payment_key = delivery_orders.payment_key AND action IN ('accept', 'cancel') AND state IN ('pending', 'sending', 'done')))) THEN delivery_orders.received_utc END AS needs_answer_since 
FROM delivery_orders 
WHERE ended_utc IS NULL;

GO

CREATE TABLE delivery_lamps (
    account NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    lamp NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    since_utc DATETIME2(3) NOT NULL, 
    code NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    sentence NVARCHAR(max) NOT NULL, 
    remedy NVARCHAR(max) NULL, 
    CONSTRAINT delivery_lamps_pk PRIMARY KEY (account)
);

GO

CREATE VIEW delivery_lamp AS SELECT delivery_lamps.account, delivery_lamps.lamp, delivery_lamps.since_utc, delivery_lamps.code, delivery_lamps.sentence, delivery_lamps.remedy 
FROM delivery_lamps 
WHERE EXISTS (SELECT delivery_daemon.id 
FROM delivery_daemon 
WHERE delivery_daemon.silent_from_utc >= SYSUTCDATETIME()) UNION ALL SELECT delivery_lamps.account, 'red', delivery_daemon.seen_utc, 'not_polling', delivery_daemon.cause, delivery_daemon.remedy 
FROM delivery_lamps JOIN delivery_daemon ON delivery_daemon.silent_from_utc < SYSUTCDATETIME();

GO

UPDATE delivery_schema_version SET version_num='0005' WHERE delivery_schema_version.version_num = '0004';

GO

-- Running upgrade 0005 -> 0006

CREATE TABLE delivery_account_settings (
    name NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    fingerprint NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    sealed NVARCHAR(max) NULL, 
    key_id NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    enabled INTEGER NOT NULL, 
    version BIGINT NOT NULL, 
    changed_utc DATETIME2(3) NOT NULL, 
    CONSTRAINT delivery_account_settings_pk PRIMARY KEY (name), 
    CONSTRAINT delivery_account_settings_fingerprint_uq UNIQUE (fingerprint)
);

GO

CREATE TABLE delivery_fleet (
    id INTEGER NOT NULL, 
    buckets INTEGER NOT NULL DEFAULT 64, 
    accounts_version BIGINT NOT NULL DEFAULT 0, 
    CONSTRAINT delivery_fleet_pk PRIMARY KEY (id)
);

GO

INSERT INTO delivery_fleet (id) VALUES (1);

GO

UPDATE delivery_schema_version SET version_num='0006' WHERE delivery_schema_version.version_num = '0005';

GO

-- Running upgrade 0006 -> 0007

CREATE TABLE delivery_buckets (
    bucket INTEGER NOT NULL, 
    replica NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    taken_utc DATETIME2(3) NULL, 
    CONSTRAINT delivery_buckets_pk PRIMARY KEY (bucket)
);

GO

CREATE TABLE delivery_replicas (
    replica NVARCHAR(64) COLLATE Latin1_General_BIN2 NOT NULL, 
    number INTEGER NOT NULL, 
    epoch INTEGER NOT NULL DEFAULT 0, 
    node NVARCHAR(64) COLLATE Latin1_General_BIN2 NULL, 
    started_utc DATETIME2(3) NOT NULL, 
    seen_utc DATETIME2(3) NULL, 
    problems NVARCHAR(max) NULL, 
    CONSTRAINT delivery_replicas_pk PRIMARY KEY (replica)
);

GO

UPDATE delivery_schema_version SET version_num='0007' WHERE delivery_schema_version.version_num = '0006';

GO

COMMIT;

GO

