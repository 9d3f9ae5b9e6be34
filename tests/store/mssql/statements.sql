-- schema.current
SELECT version_num FROM delivery_schema_version;

-- accounts.register
UPDATE delivery_accounts SET name=:name WHERE delivery_accounts.fingerprint = :fingerprint_1;
INSERT INTO delivery_accounts (fingerprint, name) VALUES (:fingerprint, :name);

-- accounts.reserve_poll
UPDATE delivery_accounts SET last_poll_utc=:now, next_poll_utc=:until WHERE delivery_accounts.fingerprint = :mine AND (delivery_accounts.next_poll_utc IS NULL OR delivery_accounts.next_poll_utc <= :now);

-- accounts.reserve_poll, too early
UPDATE delivery_accounts SET last_poll_utc=:now, next_poll_utc=:until WHERE delivery_accounts.fingerprint = :mine AND (delivery_accounts.next_poll_utc IS NULL OR delivery_accounts.next_poll_utc <= :now);
SELECT delivery_accounts.next_poll_utc
FROM delivery_accounts
WHERE delivery_accounts.fingerprint = :fingerprint_1;
UPDATE delivery_accounts SET next_poll_utc=:next_poll_utc WHERE delivery_accounts.fingerprint = :fingerprint_1;

-- accounts.note_poll
UPDATE delivery_accounts SET state=:state, last_poll_ok_utc=:last_poll_ok_utc WHERE delivery_accounts.fingerprint = :mine;

-- accounts.overview
SELECT delivery_accounts.name, delivery_accounts.state, delivery_accounts.last_poll_utc, delivery_accounts.last_poll_ok_utc, delivery_accounts.next_poll_utc, delivery_accounts.token_expires_utc, delivery_accounts.last_error
FROM delivery_accounts
WHERE delivery_accounts.fingerprint IN (:fingerprint_1_1) ORDER BY delivery_accounts.name;

-- accounts.Vault.save
UPDATE delivery_tokens SET ciphertext=:ciphertext, issued_utc=:issued_utc, expires_utc=:expires_utc WHERE delivery_tokens.fingerprint = :fingerprint_1;
INSERT INTO delivery_tokens (fingerprint, ciphertext, issued_utc, expires_utc) VALUES (:fingerprint, :ciphertext, :issued_utc, :expires_utc);
UPDATE delivery_accounts SET token_expires_utc=:token_expires_utc WHERE delivery_accounts.fingerprint = :mine;

-- accounts.Vault.load
SELECT delivery_tokens.fingerprint, delivery_tokens.ciphertext, delivery_tokens.issued_utc, delivery_tokens.expires_utc
FROM delivery_tokens
WHERE delivery_tokens.fingerprint = :fingerprint_1;

-- orders.insert_new
INSERT INTO delivery_orders (payment_key, account, order_number, status_id, status, status_text, restaurant_id, restaurant_name, shipping_method, payment_method, payment_code, amount_due, note, total, discount, courier_type, courier_fee, order_tip, ordered_at, scheduled_for, customer_name, customer_phone, address, address_description, apartment_no, building_no, neighborhood_name, district_name, city_name, payload, revision, last_change, service_status_id, payload_hash, received_utc, changed_utc, ended_utc, ended_by, problem) VALUES (:payment_key, :account, :order_number, :status_id, :status, :status_text, :restaurant_id, :restaurant_name, :shipping_method, :payment_method, :payment_code, :amount_due, :note, :total, :discount, :courier_type, :courier_fee, :order_tip, :ordered_at, :scheduled_for, :customer_name, :customer_phone, :address, :address_description, :apartment_no, :building_no, :neighborhood_name, :district_name, :city_name, :payload, :revision, :last_change, :service_status_id, :payload_hash, :received_utc, :changed_utc, :ended_utc, :ended_by, :problem);
INSERT INTO delivery_order_items (payment_key, line_no, item_id, food_id, name, note, price, quantity, total) VALUES (:payment_key, :line_no, :item_id, :food_id, :name, :note, :price, :quantity, :total);
INSERT INTO delivery_order_item_options (payment_key, line_no, option_no, group_id, group_name, type, operation, option_id, option_name, price) VALUES (:payment_key, :line_no, :option_no, :group_id, :group_name, :type, :operation, :option_id, :option_name, :price);
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.stored
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1, :wanted_2);

-- orders.payloads
SELECT delivery_orders.payment_key, delivery_orders.payload
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:payment_key_1_1, :payment_key_1_2);

-- orders.with_unresolved_rows
SELECT delivery_actions.payment_key
FROM delivery_actions
WHERE state IN ('pending', 'sending') AND delivery_actions.state = :state_1 AND delivery_actions.payment_key IN (:payment_key_1_1, :payment_key_1_2);

-- locks.free_orders

-- orders.update_delivered
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET order_number=:order_number, status_id=:status_id, status=:status, status_text=:status_text, restaurant_id=:restaurant_id, restaurant_name=:restaurant_name, shipping_method=:shipping_method, payment_method=:payment_method, payment_code=:payment_code, amount_due=:amount_due, note=:note, total=:total, discount=:discount, courier_type=:courier_type, courier_fee=:courier_fee, order_tip=:order_tip, ordered_at=:ordered_at, scheduled_for=:scheduled_for, customer_name=:customer_name, customer_phone=:customer_phone, address=:address, address_description=:address_description, apartment_no=:apartment_no, building_no=:building_no, neighborhood_name=:neighborhood_name, district_name=:district_name, city_name=:city_name, payload=:payload, revision=(delivery_orders.revision + :revision_1), last_change=:last_change, service_status_id=:service_status_id, payload_hash=:payload_hash, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by, problem=:problem WHERE delivery_orders.payment_key = :payment_key_1;
DELETE FROM delivery_order_item_options WHERE delivery_order_item_options.payment_key = :payment_key_1;
DELETE FROM delivery_order_items WHERE delivery_order_items.payment_key = :payment_key_1;
INSERT INTO delivery_order_items (payment_key, line_no, item_id, food_id, name, note, price, quantity, total) VALUES (:payment_key, :line_no, :item_id, :food_id, :name, :note, :price, :quantity, :total);
INSERT INTO delivery_order_item_options (payment_key, line_no, option_no, group_id, group_name, type, operation, option_id, option_name, price) VALUES (:payment_key, :line_no, :option_no, :group_id, :group_name, :type, :operation, :option_id, :option_name, :price);
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.set_status
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET status_id=:status_id, status=:status, revision=(delivery_orders.revision + :revision_1), last_change=:last_change, service_status_id=:service_status_id, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by, problem=:problem WHERE delivery_orders.payment_key = :payment_key_1;

-- orders.doubt_status
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET problem=:problem WHERE delivery_orders.payment_key = :payment_key_1;

-- orders.adopt
UPDATE delivery_orders SET account=:account WHERE delivery_orders.payment_key = :payment_key_1;

-- orders.mark_acknowledged
UPDATE delivery_orders SET acknowledged_utc=:marked_at, acknowledged_status_id=:marked_status WHERE delivery_orders.payment_key = :marked_key;
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.tell
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.counts
SELECT count(*) AS count_1
FROM delivery_orders
WHERE pos_revision = 0 AND ended_utc IS NULL;
SELECT count(*) AS count_1
FROM delivery_orders
WHERE pos_is_behind = 1;
SELECT count(*) AS count_1
FROM delivery_orders
WHERE ended_utc IS NULL;

-- actions.add
INSERT INTO delivery_actions (action, payment_key, preparing_time) OUTPUT inserted.id VALUES (:action, :payment_key, :preparing_time);

-- actions.add_once
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.request_id = :request_id_1;
INSERT INTO delivery_actions (action, payment_key, request_id) OUTPUT inserted.id VALUES (:action, :payment_key, :request_id);

-- actions.read_unfinished
SELECT TOP 20000 delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried
FROM delivery_actions
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id;

-- actions.read_unfinished, on the wire
SELECT TOP 20000 delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried
FROM delivery_actions
WHERE state IN ('pending', 'sending') AND delivery_actions.state = :state_1 ORDER BY delivery_actions.id;

-- actions.count_unfinished
SELECT count(*) AS count_1
FROM delivery_actions
WHERE state IN ('pending', 'sending');

-- actions.start
SELECT TOP 20000 delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried
FROM delivery_actions
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id;
UPDATE delivery_actions SET state=:state, next_attempt_utc=:next_attempt_utc WHERE delivery_actions.id = :row AND delivery_actions.state = :was AND delivery_actions.withdraw = :asked_back AND EXISTS (SELECT delivery_actions.next_attempt_utc INTERSECT SELECT :due);
INSERT INTO delivery_action_attempts (action_id, attempt, started_utc) VALUES (:action_id, :attempt, :started_utc);

-- actions.unfinished_attempts
SELECT delivery_action_attempts.action_id, delivery_action_attempts.attempt
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id IN (SELECT delivery_actions.id
FROM delivery_actions
WHERE state IN ('pending', 'sending')) AND delivery_action_attempts.finished_utc IS NULL;

-- actions.record
UPDATE delivery_action_attempts SET finished_utc=:finished_utc, outcome=:outcome, http_status=:http_status, error_code=:error_code, detail=:detail WHERE delivery_action_attempts.action_id = :action_id_1 AND delivery_action_attempts.attempt = :attempt_1;

-- actions.histories
SELECT delivery_action_attempts.action_id, delivery_action_attempts.outcome, delivery_action_attempts.error_code, delivery_action_attempts.http_status, delivery_action_attempts.spent, delivery_action_attempts.finished_utc
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id IN (:wanted_1, :wanted_2) AND delivery_action_attempts.finished_utc IS NOT NULL ORDER BY delivery_action_attempts.action_id, delivery_action_attempts.attempt;

-- actions.forget_attempt
DELETE FROM delivery_action_attempts WHERE delivery_action_attempts.action_id = :action_id_1 AND delivery_action_attempts.attempt = :attempt_1;

-- actions.postpone
UPDATE delivery_actions SET state=:state, attempts=:attempts, next_attempt_utc=:next_attempt_utc, http_status=:http_status, error_code=:error_code, error_text=:error_text WHERE delivery_actions.id = :id_1 AND delivery_actions.state = :state_1;

-- actions.unexplained
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.id IN (:id_1_1, :id_1_2) AND delivery_actions.error_code IS NULL;

-- actions.explain
UPDATE delivery_actions SET error_code=:error_code, error_text=:error_text WHERE delivery_actions.id = :id_1 AND delivery_actions.state = :state_1 AND delivery_actions.error_code IS NULL;

-- actions.ask_back
UPDATE delivery_actions SET withdraw=:withdraw WHERE delivery_actions.id = :id_1 AND state IN ('pending', 'sending');

-- actions.finish
UPDATE delivery_actions SET state=:state, attempts=:attempts, next_attempt_utc=:next_attempt_utc, http_status=:http_status, error_code=:error_code, error_text=:error_text, known_by=:known_by, finished_utc=:finished_utc WHERE delivery_actions.id = :id_1 AND state IN ('pending', 'sending');

-- actions.retry
UPDATE delivery_actions SET withdraw=:withdraw, state=:state, attempts=:attempts, next_attempt_utc=:next_attempt_utc, expires_utc=:expires_utc, http_status=:http_status, error_code=:error_code, error_text=:error_text, known_by=:known_by, finished_utc=:finished_utc WHERE delivery_actions.id = :id_1 AND delivery_actions.state = :state_1;
UPDATE delivery_action_attempts SET spent=:spent WHERE delivery_action_attempts.action_id = :action_id_1;

-- actions.ends
SELECT delivery_actions.payment_key, delivery_actions.action
FROM delivery_actions
WHERE delivery_actions.payment_key IN (:payment_key_1_1, :payment_key_1_2) AND delivery_actions.action IN (:action_1_1, :action_1_2) AND delivery_actions.state IN (:state_1_1, :state_1_2, :state_1_3);

-- orders.has_news_since
SELECT delivery_orders.payment_key
FROM delivery_orders
WHERE delivery_orders.payment_key = :payment_key_1 AND delivery_orders.changed_utc >= :changed_utc_1;

-- quarantine.read
SELECT delivery_quarantine.id, delivery_quarantine.account, delivery_quarantine.payment_key, delivery_quarantine.reason, delivery_quarantine.last_seen_utc, delivery_quarantine.payload
FROM delivery_quarantine
WHERE delivery_quarantine.id = :id_1 AND delivery_quarantine.resolved_utc IS NULL;

-- quarantine.blank_old
UPDATE delivery_quarantine SET payload=:payload, resolved_utc=coalesce(delivery_quarantine.resolved_utc, :param_1) WHERE delivery_quarantine.last_seen_utc < :last_seen_utc_1 AND delivery_quarantine.payload != :payload_1;

-- quarantine.keep
UPDATE delivery_quarantine SET payload=:payload, reason=:reason, last_seen_utc=:last_seen_utc, times_seen=(delivery_quarantine.times_seen + :times_seen_1), resolved_utc=:resolved_utc WHERE delivery_quarantine.account = :owner AND delivery_quarantine.payload_hash = :hash;
INSERT INTO delivery_quarantine (account, payment_key, payload, payload_hash, reason, first_seen_utc, last_seen_utc) OUTPUT inserted.id VALUES (:account, :payment_key, :payload, :payload_hash, :reason, :first_seen_utc, :last_seen_utc);

-- quarantine.unresolved
SELECT delivery_quarantine.id, delivery_quarantine.account, delivery_quarantine.payment_key, delivery_quarantine.reason, delivery_quarantine.first_seen_utc, delivery_quarantine.last_seen_utc, delivery_quarantine.times_seen
FROM delivery_quarantine
WHERE resolved_utc IS NULL ORDER BY delivery_quarantine.id;

-- quarantine.resolve
UPDATE delivery_quarantine SET resolved_utc=:resolved_utc WHERE delivery_quarantine.account = :account_1 AND delivery_quarantine.payment_key IN (:payment_key_1_1, :payment_key_1_2) AND resolved_utc IS NULL;

-- reference.replace_restaurants
SELECT delivery_restaurants.id
FROM delivery_restaurants
WHERE delivery_restaurants.account = :account_1;
INSERT INTO delivery_restaurants (account, id, name) VALUES (:account, :id, :name);
DELETE FROM delivery_restaurants WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id IN (:id_1_1);
UPDATE delivery_restaurants SET name=:name WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id = :id_1;

-- reference.set_restaurant_status
UPDATE delivery_restaurants SET status=:status, status_utc=:status_utc WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id = :id_1;

-- reference.restaurant_accounts
SELECT delivery_restaurants.id, delivery_restaurants.account
FROM delivery_restaurants ORDER BY delivery_restaurants.account;

-- reference.replace_cancel_reasons
DELETE FROM delivery_cancel_reasons;
INSERT INTO delivery_cancel_reasons (id, reason) VALUES (:id, :reason);

-- reference.replace_variables
DELETE FROM delivery_payment_methods;
INSERT INTO delivery_payment_methods (code, name) VALUES (:code, :name);
DELETE FROM delivery_shipping_methods;
INSERT INTO delivery_shipping_methods (code, name) VALUES (:code, :name);

-- reference.payment_codes
SELECT delivery_payment_methods.name, delivery_payment_methods.code
FROM delivery_payment_methods;

-- accounts.adopt_orphans
SELECT delivery_orders.payment_key, delivery_restaurants.account
FROM delivery_orders JOIN delivery_restaurants ON delivery_restaurants.id = delivery_orders.restaurant_id
WHERE ended_utc IS NULL AND (delivery_orders.account NOT IN (:account_1_1)) AND delivery_restaurants.account IN (:account_2_1);

-- orders.silent
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc < :changed_utc_1 AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for < :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);

-- orders.end_silent
UPDATE delivery_orders SET revision=(delivery_orders.revision + :revision_1), last_change=:last_change, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by WHERE delivery_orders.payment_key = :payment_key_1 AND ended_utc IS NULL AND delivery_orders.changed_utc < :changed_utc_1 AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for < :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);
SELECT delivery_orders.payment_key, delivery_orders.status_id, delivery_orders.status
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:payment_key_1_1);
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.with_old_contents
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE contents_ended_utc < :before AND delivery_orders.payload IS NOT NULL;

-- orders.blank_old
UPDATE delivery_orders SET note=:note, customer_name=:customer_name, customer_phone=:customer_phone, address=:address, address_description=:address_description, apartment_no=:apartment_no, building_no=:building_no, neighborhood_name=:neighborhood_name, district_name=:district_name, city_name=:city_name, payload=:payload, payload_hash=:payload_hash WHERE delivery_orders.payment_key = :payment_key_1 AND contents_ended_utc < :before AND delivery_orders.payload IS NOT NULL;
UPDATE delivery_order_items SET note=:note WHERE delivery_order_items.payment_key IN (:payment_key_1_1);
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key IN (:payment_key_1_1);
UPDATE delivery_action_attempts SET detail=:detail WHERE delivery_action_attempts.action_id IN (:action_id_1_1, :action_id_1_2);
