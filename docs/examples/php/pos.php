<?php
// A mini POS for orderbridge. PHP 7.4 or newer with pdo_sqlite.
//
//   php pos.php DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.

const LOOK_US = 500000;
const READY_IN_MINUTES = 25;
const OUT_OF_STOCK = 1; // delivery_cancel_reasons

$db = new PDO('sqlite:' . $argv[1], null, null, [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    PDO::ATTR_TIMEOUT => 5, // wait that long for the daemon's transactions
]);
$account = $argv[2];
$foodId = (int) $argv[3];
$orders = (int) ($argv[4] ?? 0);

show_open($db);
immediate($db, fn () => ask($db, ['action' => 'deactivate_food', 'account' => $account, 'food_id' => $foodId]));
$waiting = $db->query( // our rows without a verdict, an earlier run's among them
    "SELECT id FROM delivery_actions WHERE created_by = 'mini POS' AND state IN ('pending', 'sending')"
)->fetchAll(PDO::FETCH_COLUMN);

$taken = 0;
while (true) {
    $taken += take_new($db, $waiting, $foodId);
    show_verdicts($db, $waiting);
    show_changed($db);
    if ($orders > 0 && $taken >= $orders && !$waiting) {
        exit(0);
    }
    usleep(LOOK_US);
}

// An earlier run may have stopped before it had printed what it took over: show it again.
function show_open(PDO $db): void
{
    $ours = "SELECT * FROM delivery_open_orders WHERE pos_reference LIKE 'A-%' ORDER BY received_utc, payment_key";
    foreach ($db->query($ours)->fetchAll() as $order) {
        echo "open {$order['pos_reference']}: {$order['status']}\n";
        show($db, $order);
    }
}

// Take each new order over and ask for what becomes of it, in one transaction. Only then print it.
function take_new(PDO $db, array &$waiting, int $foodId): int
{
    $holdsFood = $db->prepare('SELECT 1 FROM delivery_order_items WHERE payment_key = ? AND food_id = ?');
    $takeOver = $db->prepare(
        'UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ? AND pos_revision = 0'
    );
    $taken = 0;
    foreach ($db->query('SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key')->fetchAll() as $order) {
        $key = $order['payment_key'];
        $reference = 'A-' . $order['order_number'];
        $holdsFood->execute([$key, $foodId]);
        $soldOut = (bool) $holdsFood->fetchAll();
        $changed = immediate($db, function () use ($db, &$waiting, $takeOver, $order, $key, $reference, $soldOut) {
            $takeOver->execute([$order['revision'], $reference, $key]);
            $changed = $takeOver->rowCount();
            if ($changed && $order['status'] === 'RECEIVED') { // nobody has answered the customer yet
                $waiting[] = ask($db, $soldOut
                    ? ['request_id' => "cancel-$key", 'action' => 'cancel', 'payment_key' => $key,
                        'reason_id' => OUT_OF_STOCK]
                    : ['request_id' => "accept-$key", 'action' => 'accept', 'payment_key' => $key,
                        'preparing_time' => READY_IN_MINUTES]);
            }
            return $changed;
        });
        if ($changed) { // otherwise another till has it, and prints it
            echo "new $reference\n";
            show($db, $order);
            $taken++;
        }
    }
    return $taken;
}

// What to collect, what to cook, and what else to know. A NULL says "?": the service did not say.
function show(PDO $db, array $order): void
{
    $due = $order['amount_due']; // NULL is no 0: nobody knows
    $money = $due === null ? 'ask what to collect' : sprintf('collect %.2f', $due);
    echo "  $money, ", $order['payment_method'] ?? '?', "\n";
    if ($order['scheduled_for']) {
        echo "  not now: for {$order['scheduled_for']}\n";
    }
    if ($order['problem']) {
        echo "  look at it in the service's panel: {$order['problem']}\n";
    }
    if ((string) $order['note'] !== '') {
        echo "  note: {$order['note']}\n";
    }
    $items = $db->prepare('SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no');
    $options = $db->prepare(
        'SELECT * FROM delivery_order_item_options WHERE payment_key = ? AND line_no = ? ORDER BY option_no'
    );
    $items->execute([$order['payment_key']]);
    foreach ($items->fetchAll() as $item) {
        echo '  ', $item['quantity'] ?? '?', ' x ', $item['name'] ?? '?', "\n";
        $options->execute([$order['payment_key'], $item['line_no']]);
        foreach ($options->fetchAll() as $option) {
            echo '    ', $option['operation'] ?? '?', ' ', $option['group_name'] ?? '?', ': ',
                $option['option_name'] ?? '?', "\n";
        }
        if ((string) $item['note'] !== '') {
            echo "    note: {$item['note']}\n";
        }
    }
}

// A row in the outbox: its id. What was asked for under the same request_id is not asked for again.
function ask(PDO $db, array $columns): int
{
    $same = $db->prepare('SELECT id FROM delivery_actions WHERE request_id = ?');
    $same->execute([$columns['request_id'] ?? null]);
    $asked = $same->fetchAll();
    if ($asked) {
        return (int) $asked[0]['id'];
    }
    $columns['created_by'] = 'mini POS';
    $names = implode(', ', array_keys($columns));
    $marks = implode(', ', array_fill(0, count($columns), '?'));
    $db->prepare("INSERT INTO delivery_actions ($names) VALUES ($marks)")->execute(array_values($columns));
    return (int) $db->lastInsertId();
}

// Show what became of the orders that we have, and note the revision that we have shown.
function show_changed(PDO $db): void
{
    $ours = "SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE 'A-%' ORDER BY changed_utc";
    $note = $db->prepare('UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?');
    foreach ($db->query($ours)->fetchAll() as $order) {
        echo "changed {$order['pos_reference']}: {$order['status']} ({$order['last_change']})\n";
        if ($order['ended_utc'] !== null) { // what is over is never printed to be cooked
            echo "  STOP: {$order['ended_by']}\n";
        } elseif ($order['contents_revision'] > $order['pos_revision']) {
            show($db, $order); // other items, notes or money than we have printed
        }
        immediate($db, fn () => $note->execute([$order['revision'], $order['payment_key']]));
    }
}

// Tell the cashier how each row ended.
function show_verdicts(PDO $db, array &$waiting): void
{
    $ended = $db->prepare(
        "SELECT action, food_id, pos_reference, state, error_text FROM delivery_actions
           LEFT JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
          WHERE id = ? AND state NOT IN ('pending', 'sending')"
    );
    foreach ($waiting as $place => $id) {
        $ended->execute([$id]);
        foreach ($ended->fetchAll() as $row) {
            $about = $row['pos_reference'] ?? $row['food_id'];
            echo rtrim("verdict {$row['action']} $about: {$row['state']} {$row['error_text']}"), "\n";
            unset($waiting[$place]);
        }
    }
}

// PDO's own beginTransaction() is a deferred BEGIN: it fails at once beside another writer, whatever the timeout.
function immediate(PDO $db, callable $work)
{
    $db->exec('BEGIN IMMEDIATE');
    try {
        $result = $work();
        $db->exec('COMMIT');
        return $result;
    } catch (Throwable $error) {
        $db->exec('ROLLBACK');
        throw $error;
    }
}
