-- schema.current
SELECT version_num FROM delivery_schema_version;

-- accounts.register
SELECT delivery_accounts.fingerprint, delivery_accounts.name, delivery_accounts.listened_seconds, delivery_accounts.polled_in_turn_with, delivery_accounts.next_poll_utc, delivery_accounts.state
FROM delivery_accounts;
INSERT INTO delivery_accounts (fingerprint, name, state, next_poll_utc, listened_seconds, polled_in_turn_with) VALUES (:fingerprint, :name, :state, :next_poll_utc, :listened_seconds, :polled_in_turn_with);

-- accounts.reserve_poll
UPDATE delivery_accounts SET last_poll_utc=:now, next_poll_utc=:until WHERE (delivery_accounts.next_poll_utc IS NULL OR delivery_accounts.next_poll_utc <= :now) AND delivery_accounts.fingerprint = :mine;

-- accounts.reserve_poll, too early
UPDATE delivery_accounts SET last_poll_utc=:now, next_poll_utc=:until WHERE (delivery_accounts.next_poll_utc IS NULL OR delivery_accounts.next_poll_utc <= :now) AND delivery_accounts.fingerprint = :mine;
SELECT delivery_accounts.next_poll_utc
FROM delivery_accounts
WHERE delivery_accounts.fingerprint = :fingerprint_1;
UPDATE delivery_accounts SET next_poll_utc=:next_poll_utc WHERE delivery_accounts.fingerprint = :fingerprint_1;

-- accounts.note_poll
UPDATE delivery_accounts SET state=:state, last_poll_ok_utc=:last_poll_ok_utc WHERE delivery_accounts.fingerprint = :mine;

-- accounts.note_successes
UPDATE delivery_accounts SET state=:state, last_poll_ok_utc=:polled, next_poll_utc=:next, last_error=:last_error, listened_seconds=(delivery_accounts.listened_seconds + :listened), not_stored=:lost, not_written=:refused WHERE delivery_accounts.fingerprint = :mine;

-- accounts.reserve_polls
UPDATE delivery_accounts SET last_poll_utc=:now, next_poll_utc=:until WHERE (delivery_accounts.next_poll_utc IS NULL OR delivery_accounts.next_poll_utc <= :now) AND delivery_accounts.fingerprint IN (%(some_1)s);

-- accounts.kept_tokens
SELECT delivery_tokens.fingerprint, delivery_tokens.ciphertext, delivery_tokens.issued_utc, delivery_tokens.expires_utc
FROM delivery_tokens;

-- accounts.last_noted_poll
SELECT max(delivery_accounts.next_poll_utc) AS max_1
FROM delivery_accounts
WHERE delivery_accounts.last_poll_utc IS NOT NULL;

-- accounts.note_group
UPDATE delivery_accounts SET polled_in_turn_with=:polled_in_turn_with WHERE delivery_accounts.fingerprint = :mine;

-- accounts.overview
SELECT delivery_accounts.fingerprint, delivery_accounts.name, delivery_accounts.state, delivery_accounts.last_poll_utc, delivery_accounts.last_poll_ok_utc, delivery_accounts.next_poll_utc, delivery_accounts.token_expires_utc, delivery_accounts.last_error, delivery_accounts.polled_in_turn_with
FROM delivery_accounts ORDER BY delivery_accounts.name;

-- accounts.Vault.save
UPDATE delivery_tokens SET ciphertext=:ciphertext, issued_utc=:issued_utc, expires_utc=:expires_utc WHERE delivery_tokens.fingerprint = :fingerprint_1;
INSERT INTO delivery_tokens (fingerprint, ciphertext, issued_utc, expires_utc) VALUES (:fingerprint, :ciphertext, :issued_utc, :expires_utc);
UPDATE delivery_accounts SET token_expires_utc=:token_expires_utc WHERE delivery_accounts.fingerprint = :mine;

-- orders.insert_new
INSERT INTO delivery_orders (payment_key, account, order_number, status_id, status, status_text, restaurant_id, restaurant_name, shipping_method, payment_method, payment_code, amount_due, note, total, discount, courier_type, courier_fee, order_tip, ordered_at, scheduled_for, customer_name, customer_phone, address, address_description, apartment_no, building_no, neighborhood_name, district_name, city_name, payload, revision, last_change, service_status_id, payload_hash, received_utc, changed_utc, ended_utc, ended_by, problem, service_key) VALUES (:payment_key, :account, :order_number, :status_id, :status, :status_text, :restaurant_id, :restaurant_name, :shipping_method, :payment_method, :payment_code, :amount_due, :note, :total, :discount, :courier_type, :courier_fee, :order_tip, :ordered_at, :scheduled_for, :customer_name, :customer_phone, :address, :address_description, :apartment_no, :building_no, :neighborhood_name, :district_name, :city_name, :payload, :revision, :last_change, :service_status_id, :payload_hash, :received_utc, :changed_utc, :ended_utc, :ended_by, :problem, :service_key);
INSERT INTO delivery_order_items (payment_key, line_no, item_id, food_id, name, note, price, quantity, total) VALUES (:payment_key, :line_no, :item_id, :food_id, :name, :note, :price, :quantity, :total);
INSERT INTO delivery_order_item_options (payment_key, line_no, option_no, group_id, group_name, type, operation, option_id, option_name, price) VALUES (:payment_key, :line_no, :option_no, :group_id, :group_name, :type, :operation, :option_id, :option_name, :price);
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.stored
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1, :wanted_2);

-- orders.hold
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

-- locks.lock_orders

-- orders.update_delivered
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET order_number=:order_number, status_id=:status_id, status=:status, status_text=:status_text, restaurant_id=:restaurant_id, restaurant_name=:restaurant_name, shipping_method=:shipping_method, payment_method=:payment_method, payment_code=:payment_code, amount_due=:amount_due, note=:note, total=:total, discount=:discount, courier_type=:courier_type, courier_fee=:courier_fee, order_tip=:order_tip, ordered_at=:ordered_at, scheduled_for=:scheduled_for, customer_name=:customer_name, customer_phone=:customer_phone, address=:address, address_description=:address_description, apartment_no=:apartment_no, building_no=:building_no, neighborhood_name=:neighborhood_name, district_name=:district_name, city_name=:city_name, payload=:payload, revision=(delivery_orders.revision + :revision_1), last_change=:last_change, service_status_id=:service_status_id, payload_hash=:payload_hash, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by, problem=:problem, silence_from=:silence_from, service_key=:service_key, contents_revision=:contents_revision WHERE delivery_orders.payment_key = :payment_key_1;
DELETE FROM delivery_order_item_options WHERE delivery_order_item_options.payment_key = :payment_key_1;
DELETE FROM delivery_order_items WHERE delivery_order_items.payment_key = :payment_key_1;
INSERT INTO delivery_order_items (payment_key, line_no, item_id, food_id, name, note, price, quantity, total) VALUES (:payment_key, :line_no, :item_id, :food_id, :name, :note, :price, :quantity, :total);
INSERT INTO delivery_order_item_options (payment_key, line_no, option_no, group_id, group_name, type, operation, option_id, option_name, price) VALUES (:payment_key, :line_no, :option_no, :group_id, :group_name, :type, :operation, :option_id, :option_name, :price);
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.update_least
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET status_id=:status_id, status=:status, status_text=:status_text, revision=(delivery_orders.revision + :revision_1), last_change=:last_change, service_status_id=:service_status_id, payload_hash=:payload_hash, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by, problem=:problem, silence_from=:silence_from WHERE delivery_orders.payment_key = :payment_key_1;
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.set_status
SELECT delivery_orders.payment_key, delivery_orders.account, delivery_orders.status_id, delivery_orders.service_status_id, delivery_orders.revision, delivery_orders.payload_hash, delivery_orders.courier_type, delivery_orders.acknowledged_status_id, delivery_orders.ended_by, delivery_orders.problem
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1);
UPDATE delivery_orders SET status_id=:status_id, status=:status, revision=(delivery_orders.revision + :revision_1), last_change=:last_change, service_status_id=:service_status_id, changed_utc=:changed_utc, problem=:problem, silence_from=:silence_from WHERE delivery_orders.payment_key IN (%(payment_key_1_1)s);

-- orders.doubt_status
UPDATE delivery_orders SET problem=:problem WHERE delivery_orders.payment_key IN (%(payment_key_1_1)s);

-- orders.adopt
UPDATE delivery_orders SET account=:account, silence_from=:silence_from WHERE delivery_orders.payment_key = :payment_key_1;

-- orders.mark_acknowledged
UPDATE delivery_orders SET acknowledged_utc=:marked_at, acknowledged_status_id=:marked_status WHERE delivery_orders.payment_key = :marked_key;
INSERT INTO delivery_order_events (payment_key, at_utc, event, status_id, status, detail) OUTPUT inserted.id VALUES (:payment_key, :at_utc, :event, :status_id, :status, :detail);

-- orders.append_events
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

-- unfinished.read_unfinished
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, NULL AS owner
FROM delivery_actions
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id;

-- unfinished.read_unfinished, on the wire
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, delivery_orders.account AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions LEFT OUTER JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
WHERE state IN ('pending', 'sending') AND delivery_actions.state = :state_1 ORDER BY delivery_actions.id;

-- actions.start
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, NULL AS owner
FROM delivery_actions
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id;
UPDATE delivery_actions SET state=:state, next_attempt_utc=:next_attempt_utc WHERE state IN ('pending', 'sending') AND delivery_actions.id IN (%(wanted_1)s) AND delivery_actions.state = :was AND delivery_actions.withdraw = :asked_back;
INSERT INTO delivery_action_attempts (action_id, attempt, started_utc) SELECT delivery_actions.id, :number AS anon_1, :at AS anon_2
FROM delivery_actions
WHERE delivery_actions.id IN (%(wanted_1)s);

-- unfinished.unfinished_attempts
SELECT delivery_action_attempts.action_id, delivery_action_attempts.attempt
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id IN (SELECT delivery_actions.id
FROM delivery_actions
WHERE state IN ('pending', 'sending')) AND delivery_action_attempts.finished_utc IS NULL;

-- actions.record
UPDATE delivery_action_attempts SET finished_utc=:at, outcome=:how, http_status=:said, error_code=:code, detail=:words WHERE delivery_action_attempts.attempt = :number AND delivery_action_attempts.action_id IN (%(wanted_1)s);

-- unfinished.histories
SELECT delivery_action_attempts.action_id, delivery_action_attempts.outcome, delivery_action_attempts.error_code, delivery_action_attempts.http_status, delivery_action_attempts.spent, delivery_action_attempts.finished_utc
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id IN (:wanted_1, :wanted_2) AND delivery_action_attempts.finished_utc IS NOT NULL ORDER BY delivery_action_attempts.action_id, delivery_action_attempts.attempt;

-- unfinished.as_delivered
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, NULL AS owner
FROM delivery_actions
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id;
SELECT delivery_orders.payment_key, delivery_orders.service_key
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:wanted_1) AND delivery_orders.service_key IS NOT NULL;
SELECT delivery_restaurants.id, delivery_restaurants.service_id
FROM delivery_restaurants
WHERE delivery_restaurants.id IN (:wanted_1) AND delivery_restaurants.service_id IS NOT NULL;

-- actions.forget_attempts
DELETE FROM delivery_action_attempts WHERE delivery_action_attempts.action_id = :row AND delivery_action_attempts.attempt = :number;

-- actions.postpone
UPDATE delivery_actions SET state=:became, attempts=:counted, next_attempt_utc=:due, http_status=:said, error_code=:code, error_text=:words WHERE state IN ('pending', 'sending') AND delivery_actions.state = :state_1 AND delivery_actions.id IN (%(wanted_1)s);

-- unfinished.newest
SELECT TOP 100 delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, delivery_orders.account AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions LEFT OUTER JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
WHERE state IN ('pending', 'sending') ORDER BY delivery_actions.id DESC;

-- unfinished.unfinished_of
SELECT delivery_actions.payment_key, delivery_actions.id
FROM delivery_actions
WHERE state IN ('pending', 'sending') AND delivery_actions.payment_key IN (:wanted_1, :wanted_2);

-- unfinished.above
SELECT TOP 1000 delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, delivery_orders.account AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions LEFT OUTER JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
WHERE state IN ('pending', 'sending') AND delivery_actions.id > :above ORDER BY delivery_actions.id;

-- unfinished.these
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, delivery_orders.account AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions LEFT OUTER JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
WHERE state IN ('pending', 'sending') AND delivery_actions.id IN (:wanted_1, :wanted_2);

-- unfinished.asked_back
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, delivery_orders.account AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions LEFT OUTER JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
WHERE state IN ('pending', 'sending') AND withdraw = 1;

-- unfinished.claim
SELECT delivery_actions.id, delivery_actions.action, delivery_actions.state, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, delivery_actions.account, delivery_actions.preparing_time, delivery_actions.reason_id, delivery_actions.valid_minutes, delivery_actions.withdraw, delivery_actions.created_utc, delivery_actions.next_attempt_utc, delivery_actions.expires_utc, delivery_actions.attempts, delivery_actions.error_code, (SELECT count(*) AS count_1
FROM delivery_action_attempts
WHERE delivery_action_attempts.action_id = delivery_actions.id) AS tried, NULL AS owner, SYSUTCDATETIME() AS asked_utc
FROM delivery_actions
WHERE state IN ('pending', 'sending') AND delivery_actions.id IN (:wanted_1, :wanted_2);

-- actions.explain
SELECT delivery_actions.id
FROM delivery_actions
WHERE state IN ('pending', 'sending') AND state = 'pending' AND delivery_actions.error_code IS NULL AND delivery_actions.id IN (:wanted_1);
UPDATE delivery_actions SET error_code=:code, error_text=:words WHERE state IN ('pending', 'sending') AND state = 'pending' AND delivery_actions.id IN (%(wanted_1)s);

-- actions.ask_back
UPDATE delivery_actions SET withdraw=:withdraw WHERE delivery_actions.id = :id_1 AND state IN ('pending', 'sending');

-- actions.finish
UPDATE delivery_actions SET state=:became, attempts=:counted, next_attempt_utc=:next_attempt_utc, http_status=:said, error_code=:code, error_text=:words, known_by=:how, finished_utc=:at WHERE state IN ('pending', 'sending') AND delivery_actions.id IN (%(wanted_1)s);

-- actions.retry
UPDATE delivery_actions SET withdraw=:withdraw, state=:state, attempts=:attempts, next_attempt_utc=:next_attempt_utc, expires_utc=:expires_utc, http_status=:http_status, error_code=:error_code, error_text=:error_text, known_by=:known_by, finished_utc=:finished_utc WHERE delivery_actions.id = :id_1 AND delivery_actions.state = :state_1;
UPDATE delivery_action_attempts SET finished_utc=delivery_action_attempts.started_utc, outcome=:outcome WHERE delivery_action_attempts.action_id = :action_id_1 AND delivery_action_attempts.finished_utc IS NULL;
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

-- books.begin
SELECT delivery_books.id
FROM delivery_books;
INSERT INTO delivery_books (id) VALUES (:id);

-- books.stands
SELECT delivery_books.id, delivery_books.older_since_utc, delivery_books.last_known_utc, delivery_books.missing, delivery_books.missing_numbers, (SELECT max(delivery_order_events.id) AS max_1
FROM delivery_order_events) AS event, (SELECT sum(delivery_accounts.listened_seconds) AS sum_1
FROM delivery_accounts) AS listened
FROM delivery_books;
SELECT delivery_orders.order_number
FROM delivery_orders JOIN delivery_order_events ON delivery_order_events.payment_key = delivery_orders.payment_key
WHERE delivery_order_events.id = :event;

-- books.last_known
SELECT TOP 1 delivery_order_events.at_utc
FROM delivery_order_events ORDER BY delivery_order_events.id DESC;
SELECT max(delivery_orders.order_number) AS max_1
FROM delivery_orders;

-- books.unknown
SELECT delivery_orders.payment_key
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:payment_key_1_1, :payment_key_1_2);
SELECT delivery_quarantine.payment_key
FROM delivery_quarantine
WHERE delivery_quarantine.payment_key IN (:payment_key_1_1, :payment_key_1_2);

-- books.note_older
UPDATE delivery_books SET older_since_utc=:older_since_utc, last_known_utc=:last_known_utc, missing=:missing, missing_numbers=:missing_numbers;

-- books.older
SELECT delivery_books.id, delivery_books.older_since_utc, delivery_books.last_known_utc, delivery_books.missing, delivery_books.missing_numbers
FROM delivery_books;

-- books.settle
UPDATE delivery_books SET older_since_utc=:older_since_utc WHERE delivery_books.older_since_utc IS NOT NULL;

-- books.doubt_rows
UPDATE delivery_actions SET state=:state, error_code=:error_code, error_text=:error_text, finished_utc=:finished_utc WHERE state IN ('pending', 'sending') AND delivery_actions.created_utc <= :created_utc_1;

-- quarantine.keep
UPDATE delivery_quarantine SET payload=:payload, reason=:reason, last_seen_utc=:last_seen_utc, times_seen=(delivery_quarantine.times_seen + :times_seen_1), resolved_utc=:resolved_utc WHERE delivery_quarantine.account = :owner AND delivery_quarantine.payload_hash = :hash;
INSERT INTO delivery_quarantine (account, payment_key, payload, payload_hash, reason, first_seen_utc, last_seen_utc) OUTPUT inserted.id VALUES (:account, :payment_key, :payload, :payload_hash, :reason, :first_seen_utc, :last_seen_utc);

-- quarantine.unresolved
SELECT delivery_quarantine.id, delivery_quarantine.account, delivery_quarantine.payment_key, delivery_quarantine.reason, delivery_quarantine.first_seen_utc, delivery_quarantine.last_seen_utc, delivery_quarantine.times_seen
FROM delivery_quarantine
WHERE resolved_utc IS NULL ORDER BY delivery_quarantine.id;

-- quarantine.resolve
UPDATE delivery_quarantine SET resolved_utc=:resolved_utc WHERE delivery_quarantine.account = :account_1 AND delivery_quarantine.payment_key IN (%(payment_key_1_1)s) AND resolved_utc IS NULL;

-- reference.replace_restaurants
SELECT delivery_restaurants.id
FROM delivery_restaurants
WHERE delivery_restaurants.account = :account_1;
INSERT INTO delivery_restaurants (account, id, name, service_id) VALUES (:account, :id, :name, :service_id);
DELETE FROM delivery_restaurants WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id IN (%(id_1_1)s);
UPDATE delivery_restaurants SET name=:name, service_id=:service_id WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id = :id_1;

-- reference.set_restaurant_status
UPDATE delivery_restaurants SET status=:status, status_utc=:status_utc WHERE delivery_restaurants.account = :account_1 AND delivery_restaurants.id = :id_1;

-- reference.restaurant_accounts
SELECT delivery_restaurants.id, delivery_restaurants.account
FROM delivery_restaurants ORDER BY delivery_restaurants.account;

-- reference.restaurants_of
SELECT delivery_restaurants.id, delivery_restaurants.service_id
FROM delivery_restaurants
WHERE delivery_restaurants.account = :account_1 ORDER BY delivery_restaurants.id;

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
SELECT DISTINCT delivery_orders.account
FROM delivery_orders
WHERE ended_utc IS NULL;
SELECT delivery_orders.payment_key, delivery_restaurants.account
FROM delivery_orders JOIN delivery_restaurants ON delivery_restaurants.id = delivery_orders.restaurant_id
WHERE ended_utc IS NULL AND delivery_orders.account IN (:account_1_1);

-- silence.to_count
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from IS NULL AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2) OR ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from IS NOT NULL AND NOT (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_3 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_4);

-- silence.count_from_here
UPDATE delivery_orders SET silence_from=:silence_from WHERE delivery_orders.payment_key = :payment_key_1 AND ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from IS NOT NULL AND NOT (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);
UPDATE delivery_orders SET silence_from=(SELECT max(delivery_accounts.listened_seconds) AS max_1
FROM delivery_accounts
WHERE delivery_accounts.name = delivery_orders.account) WHERE delivery_orders.payment_key = :payment_key_1 AND ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from IS NULL AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);

-- silence.silent
SELECT max(delivery_accounts.listened_seconds) AS max_1
FROM delivery_accounts;
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE delivery_orders.silence_from <= :silence_from_1 AND ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from <= (SELECT max(delivery_accounts.listened_seconds) AS max_1
FROM delivery_accounts
WHERE delivery_accounts.name = delivery_orders.account) - :param_2 AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);

-- silence.end_silent
UPDATE delivery_orders SET revision=(delivery_orders.revision + :revision_1), last_change=:last_change, changed_utc=:changed_utc, ended_utc=:ended_utc, ended_by=:ended_by, silence_from=:silence_from WHERE delivery_orders.payment_key = :payment_key_1 AND ended_utc IS NULL AND pos_revision > 0 AND delivery_orders.silence_from <= (SELECT max(delivery_accounts.listened_seconds) AS max_1
FROM delivery_accounts
WHERE delivery_accounts.name = delivery_orders.account) - :param_1 AND (delivery_orders.scheduled_for IS NULL OR delivery_orders.scheduled_for <= :scheduled_for_1 OR delivery_orders.scheduled_for NOT LIKE :scheduled_for_2);

-- health.polling
SELECT delivery_accounts.fingerprint, delivery_accounts.state, delivery_accounts.last_poll_utc, delivery_accounts.last_poll_ok_utc, delivery_accounts.last_error, delivery_accounts.next_poll_utc, delivery_accounts.not_stored, delivery_accounts.not_written, delivery_accounts.polled_in_turn_with
FROM delivery_accounts;

-- health.there
SELECT CASE WHEN (EXISTS (SELECT *
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND delivery_orders.status_id = :status_id_1)) THEN :param_1 ELSE :param_2 END AS received, CASE WHEN (EXISTS (SELECT *
FROM delivery_orders
WHERE pos_revision = 0 AND ended_utc IS NULL AND delivery_orders.received_utc < :new_since)) THEN :param_3 ELSE :param_4 END AS new, CASE WHEN (EXISTS (SELECT *
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND delivery_orders.acknowledged_utc IS NULL AND delivery_orders.received_utc < :unacknowledged_since)) THEN :param_5 ELSE :param_6 END AS unacknowledged, CASE WHEN (EXISTS (SELECT *
FROM delivery_orders
WHERE pos_is_behind = 1 AND delivery_orders.changed_utc >= :lately AND delivery_orders.changed_utc < :unseen_since AND delivery_orders.ended_by = :ended_by_1 AND NOT (EXISTS (SELECT *
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND delivery_actions.action IN (:action_1_1) AND delivery_actions.state = :state_1)))) THEN :param_7 ELSE :param_8 END AS unseen, CASE WHEN (EXISTS (SELECT *
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND (delivery_orders.problem LIKE '%' + :problem_1 + '%'))) THEN :param_9 ELSE :param_10 END AS outdated, CASE WHEN (EXISTS (SELECT *
FROM delivery_actions
WHERE state = 'failed' AND delivery_actions.finished_utc >= :lately AND delivery_actions.error_code = :error_code_1 AND (delivery_actions.action NOT IN (:action_2_1)) AND NOT (EXISTS (SELECT *
FROM delivery_orders
WHERE delivery_orders.payment_key = delivery_actions.payment_key AND (delivery_orders.changed_utc > delivery_actions.finished_utc OR delivery_orders.ended_utc IS NOT NULL))))) THEN :param_11 ELSE :param_12 END AS unknown, CASE WHEN (EXISTS (SELECT *
FROM delivery_quarantine
WHERE resolved_utc IS NULL)) THEN :param_13 ELSE :param_14 END AS quarantined;

-- health.received
SELECT TOP 1000 delivery_orders.payment_key, delivery_orders.received_utc, delivery_orders.pos_revision, delivery_orders.scheduled_for, delivery_orders.account
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND delivery_orders.status_id = :status_id_1 ORDER BY delivery_orders.changed_utc;

-- health.newest_answers
SELECT delivery_actions.payment_key, delivery_actions.state, delivery_actions.finished_utc
FROM delivery_actions
WHERE delivery_actions.payment_key IN (:keys_1) AND delivery_actions.action IN (:action_1_1, :action_1_2) AND (delivery_actions.action IN (:action_2_1) OR delivery_actions.state IN (:state_1_1, :state_1_2)) ORDER BY delivery_actions.id;

-- health.not_taken_over
SELECT delivery_orders.account, count(*) AS count_1, min(delivery_orders.received_utc) AS min_1
FROM delivery_orders
WHERE pos_revision = 0 AND ended_utc IS NULL AND delivery_orders.received_utc < :new_since GROUP BY delivery_orders.account;

-- health.unseen_cancellations
SELECT TOP 50 delivery_orders.payment_key, delivery_orders.changed_utc, delivery_orders.account
FROM delivery_orders
WHERE pos_is_behind = 1 AND delivery_orders.changed_utc >= :lately AND delivery_orders.changed_utc < :unseen_since AND delivery_orders.ended_by = :ended_by_1 AND NOT (EXISTS (SELECT *
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND delivery_actions.action IN (:action_1_1) AND delivery_actions.state = :state_1)) ORDER BY delivery_orders.changed_utc;

-- health.outdated
SELECT TOP 50 delivery_orders.payment_key, delivery_orders.changed_utc
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND (delivery_orders.problem LIKE '%' + :problem_1 + '%') ORDER BY delivery_orders.changed_utc;

-- health.unknown_outcomes
INSERT INTO delivery_actions (action, restaurant_id) OUTPUT inserted.id VALUES (:action, :restaurant_id);
UPDATE delivery_actions SET state=:became, attempts=:counted, next_attempt_utc=:next_attempt_utc, http_status=:said, error_code=:code, error_text=:words, known_by=:how, finished_utc=:at WHERE state IN ('pending', 'sending') AND delivery_actions.id IN (%(wanted_1)s);
SELECT TOP 50 delivery_actions.id, delivery_actions.finished_utc, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id, coalesce((SELECT delivery_orders.account
FROM delivery_orders
WHERE delivery_orders.payment_key = delivery_actions.payment_key), delivery_actions.account) AS account
FROM delivery_actions
WHERE state = 'failed' AND delivery_actions.finished_utc >= :lately AND delivery_actions.error_code = :error_code_1 AND (delivery_actions.action NOT IN (:action_1_1)) AND NOT (EXISTS (SELECT *
FROM delivery_orders
WHERE delivery_orders.payment_key = delivery_actions.payment_key AND (delivery_orders.changed_utc > delivery_actions.finished_utc OR delivery_orders.ended_utc IS NOT NULL))) ORDER BY delivery_actions.finished_utc;
SELECT delivery_actions.id, delivery_actions.payment_key, delivery_actions.restaurant_id, delivery_actions.food_id
FROM delivery_actions
WHERE delivery_actions.id > :id_1 AND delivery_actions.state IN (:state_1_1, :state_1_2, :state_1_3) AND delivery_actions.restaurant_id IN (:restaurant_id_1_1) ORDER BY delivery_actions.id;

-- health.quarantined
SELECT anon_1.known, count(*) AS count_1, min(anon_1.since) AS min_1
FROM (SELECT TOP 1000 CASE WHEN (delivery_quarantine.reason = :reason_1 AND (EXISTS (SELECT *
FROM delivery_orders
WHERE delivery_orders.payment_key = delivery_quarantine.payment_key))) THEN delivery_quarantine.payment_key END AS known, delivery_quarantine.first_seen_utc AS since
FROM delivery_quarantine
WHERE resolved_utc IS NULL ORDER BY delivery_quarantine.first_seen_utc) AS anon_1 GROUP BY anon_1.known;

-- health.unacknowledged
SELECT anon_1.account, count(*) AS count_1, min(anon_1.received_utc) AS min_1
FROM (SELECT TOP 1000 delivery_orders.account AS account, delivery_orders.received_utc AS received_utc
FROM delivery_orders
WHERE ended_utc IS NULL AND delivery_orders.changed_utc >= :lately AND delivery_orders.acknowledged_utc IS NULL AND delivery_orders.received_utc < :unacknowledged_since ORDER BY delivery_orders.changed_utc) AS anon_1 GROUP BY anon_1.account;

-- problems.rewrite
DELETE FROM delivery_problems WHERE delivery_problems.code = :gone AND delivery_problems.subject = :whose;
INSERT INTO delivery_problems (code, subject, account, severity, level, since_utc, how_many, cause, remedy, facts, told, noted_utc) VALUES (:code, :subject, :account, :severity, :level, :since_utc, :how_many, :cause, :remedy, :facts, :told, :noted_utc);

-- problems.written
SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy, delivery_problems.facts, delivery_problems.told, delivery_problems.noted_utc
FROM delivery_problems;

-- problems.of_codes
SELECT delivery_problems.code, delivery_problems.subject, delivery_problems.account, delivery_problems.severity, delivery_problems.level, delivery_problems.since_utc, delivery_problems.how_many, delivery_problems.cause, delivery_problems.remedy, delivery_problems.facts, delivery_problems.told, delivery_problems.noted_utc
FROM delivery_problems
WHERE delivery_problems.code IN (:code_1_1, :code_1_2) AND (EXISTS (SELECT delivery_daemon.id
FROM delivery_daemon
WHERE delivery_daemon.silent_from_utc >= SYSUTCDATETIME()));

-- problems.sign
SELECT SYSUTCDATETIME() AS utc_now_1;
UPDATE delivery_daemon SET seen_utc=:seen_utc, silent_from_utc=:silent_from_utc, cause=:cause, remedy=:remedy WHERE delivery_daemon.id = :id_1;
INSERT INTO delivery_daemon (id, seen_utc, silent_from_utc, cause, remedy) VALUES (:id, :seen_utc, :silent_from_utc, :cause, :remedy);

-- problems.shown
SELECT delivery_alarms.code, delivery_alarms.subject, delivery_alarms.account, delivery_alarms.severity, delivery_alarms.level, delivery_alarms.since_utc, delivery_alarms.how_many, delivery_alarms.cause, delivery_alarms.remedy
FROM delivery_alarms;

-- problems.as_subject

-- retention.with_old_contents
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE contents_ended_utc < :before AND delivery_orders.payload IS NOT NULL;

-- retention.blank_old
UPDATE delivery_orders SET note=:note, customer_name=:customer_name, customer_phone=:customer_phone, address=:address, address_description=:address_description, apartment_no=:apartment_no, building_no=:building_no, neighborhood_name=:neighborhood_name, district_name=:district_name, city_name=:city_name, payload=:payload, payload_hash=:payload_hash WHERE delivery_orders.payment_key = :payment_key_1 AND contents_ended_utc < :before AND delivery_orders.payload IS NOT NULL;

-- retention.blank_around
UPDATE delivery_order_items SET note=:note WHERE delivery_order_items.payment_key IN (%(payment_key_1_1)s);
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key IN (:payment_key_1_1, :payment_key_1_2);
UPDATE delivery_action_attempts SET detail=:detail WHERE delivery_action_attempts.action_id IN (%(action_id_1_1)s);

-- retention.blank_order
UPDATE delivery_orders SET note=:note, customer_name=:customer_name, customer_phone=:customer_phone, address=:address, address_description=:address_description, apartment_no=:apartment_no, building_no=:building_no, neighborhood_name=:neighborhood_name, district_name=:district_name, city_name=:city_name, payload=:payload, payload_hash=:payload_hash WHERE delivery_orders.payment_key = :payment_key_1;
UPDATE delivery_order_events SET detail=:detail WHERE delivery_order_events.payment_key = :payment_key_1;
UPDATE delivery_order_items SET note=:note WHERE delivery_order_items.payment_key IN (%(payment_key_1_1)s);
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.payment_key IN (:payment_key_1_1);
UPDATE delivery_action_attempts SET detail=:detail WHERE delivery_action_attempts.action_id IN (%(action_id_1_1)s);

-- retention.believed
SELECT TOP 49 delivery_order_events.payment_key
FROM delivery_order_events ORDER BY delivery_order_events.id DESC;
SELECT delivery_orders.ordered_at
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:payment_key_1_1, :payment_key_1_2);

-- retention.old_orders
SELECT TOP 200 delivery_orders.payment_key
FROM delivery_orders
WHERE ended_utc IS NOT NULL AND delivery_orders.received_utc < :received_utc_1 AND delivery_orders.ended_utc < :ended_utc_1 AND NOT (EXISTS (SELECT *
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND state IN ('pending', 'sending'))) AND delivery_orders.payment_key != coalesce((SELECT TOP 1 delivery_order_events.payment_key
FROM delivery_order_events ORDER BY delivery_order_events.id DESC), :coalesce_1);

-- retention.delete_orders
SELECT delivery_orders.payment_key
FROM delivery_orders
WHERE delivery_orders.payment_key IN (:payment_key_1_1, :payment_key_1_2) AND ended_utc IS NOT NULL AND delivery_orders.received_utc < :received_utc_1 AND delivery_orders.ended_utc < :ended_utc_1 AND NOT (EXISTS (SELECT *
FROM delivery_actions
WHERE delivery_actions.payment_key = delivery_orders.payment_key AND state IN ('pending', 'sending'))) AND delivery_orders.payment_key != coalesce((SELECT TOP 1 delivery_order_events.payment_key
FROM delivery_order_events ORDER BY delivery_order_events.id DESC), :coalesce_1);
DELETE FROM delivery_order_item_options WHERE delivery_order_item_options.payment_key IN (%(payment_key_1_1)s);
DELETE FROM delivery_order_items WHERE delivery_order_items.payment_key IN (%(payment_key_1_1)s);
DELETE FROM delivery_order_events WHERE delivery_order_events.payment_key IN (%(payment_key_1_1)s);
DELETE FROM delivery_orders WHERE delivery_orders.payment_key IN (%(payment_key_1_1)s);

-- retention.old_actions
SELECT TOP 200 delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.finished_utc < :finished_utc_1 AND NOT state IN ('pending', 'sending') ORDER BY delivery_actions.finished_utc;

-- retention.delete_actions
SELECT delivery_actions.id
FROM delivery_actions
WHERE delivery_actions.id IN (:id_1_1, :id_1_2) AND delivery_actions.finished_utc < :finished_utc_1 AND NOT state IN ('pending', 'sending') ORDER BY delivery_actions.id;
DELETE FROM delivery_action_attempts WHERE delivery_action_attempts.action_id IN (%(action_id_1_1)s);
DELETE FROM delivery_actions WHERE delivery_actions.id IN (%(id_1_1)s);

-- retention.delete_documents
SELECT TOP 200 delivery_quarantine.id
FROM delivery_quarantine
WHERE delivery_quarantine.resolved_utc < :resolved_utc_1 AND delivery_quarantine.last_seen_utc < :last_seen_utc_1 ORDER BY delivery_quarantine.id;
DELETE FROM delivery_quarantine WHERE delivery_quarantine.id IN (%(id_1_1)s);
