<?php
// A mini POS for orderbridge. PHP 7.4 or newer with pdo_sqlite.
//
//   php pos.php DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped.

const LOOK_US = 500000;
const READY_IN_MINUTES = 25;
const OUT_OF_STOCK = 1; // delivery_cancel_reasons

$db = new PDO('sqlite:' . $argv[1], null, null, [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_TIMEOUT => 5, // wait that long for the daemon's transactions
]);
$account = $argv[2];
$foodId = (int) $argv[3];
$orders = (int) ($argv[4] ?? 0);

$waiting = []; // our rows without a verdict: id => what we call it
immediate($db, function () use ($db, &$waiting, $account, $foodId) {
    ask($db, $waiting, "deactivate_food $foodId",
        ['action' => 'deactivate_food', 'account' => $account, 'food_id' => $foodId]);
});

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

// Print each new order, then say that we have it and what becomes of it, in one transaction.
function take_new(PDO $db, array &$waiting, int $foodId): int
{
    $new = $db->query(
        'SELECT payment_key, revision, order_number, status, payment_method, COALESCE(ROUND(total, 2), 0) AS total,
                problem
           FROM delivery_new_orders ORDER BY received_utc'
    )->fetchAll(PDO::FETCH_ASSOC);
    $itemsOf = $db->prepare(
        'SELECT quantity, name, food_id FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no'
    );
    foreach ($new as $order) {
        $key = $order['payment_key'];
        $reference = 'A-' . $order['order_number'];
        printf("new %s: %.2f %s\n", $reference, $order['total'], $order['payment_method']);
        if ($order['problem']) {
            echo "  look at it in the service's panel: {$order['problem']}\n";
        }
        $itemsOf->execute([$key]);
        $soldOut = false;
        foreach ($itemsOf->fetchAll(PDO::FETCH_ASSOC) as $item) {
            printf("  %d x %s\n", $item['quantity'], $item['name']);
            $soldOut = $soldOut || (int) $item['food_id'] === $foodId;
        }
        immediate($db, function () use ($db, &$waiting, $order, $key, $reference, $soldOut) {
            $db->prepare('UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?')
               ->execute([$order['revision'], $reference, $key]);
            if ($order['status'] !== 'RECEIVED') {
                return; // somebody has answered the customer already
            }
            if ($soldOut) {
                ask($db, $waiting, "cancel $reference",
                    ['action' => 'cancel', 'payment_key' => $key, 'reason_id' => OUT_OF_STOCK]);
            } else {
                ask($db, $waiting, "accept $reference",
                    ['action' => 'accept', 'payment_key' => $key, 'preparing_time' => READY_IN_MINUTES]);
            }
        });
    }
    return count($new);
}

// A row in the outbox. A constraint that it breaks is an error of this program, and throws.
function ask(PDO $db, array &$waiting, string $words, array $columns): void
{
    $columns['created_by'] = 'mini POS';
    $names = implode(', ', array_keys($columns));
    $marks = implode(', ', array_fill(0, count($columns), '?'));
    $db->prepare("INSERT INTO delivery_actions ($names) VALUES ($marks)")->execute(array_values($columns));
    $waiting[(int) $db->lastInsertId()] = $words;
}

// Show what became of the orders that we have, and note the revision that we have shown.
function show_changed(PDO $db): void
{
    $changed = $db->query(
        'SELECT payment_key, revision, pos_reference, status, last_change
           FROM delivery_changed_orders ORDER BY changed_utc'
    )->fetchAll(PDO::FETCH_ASSOC);
    foreach ($changed as $order) {
        echo "changed {$order['pos_reference']}: {$order['status']} ({$order['last_change']})\n";
        immediate($db, function () use ($db, $order) {
            $db->prepare('UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?')
               ->execute([$order['revision'], $order['payment_key']]);
        });
    }
}

// Tell the cashier how each row ended.
function show_verdicts(PDO $db, array &$waiting): void
{
    $ended = $db->prepare(
        "SELECT state, error_text FROM delivery_actions WHERE id = ? AND state NOT IN ('pending', 'sending')"
    );
    foreach ($waiting as $id => $words) {
        $ended->execute([$id]);
        foreach ($ended->fetchAll(PDO::FETCH_ASSOC) as $row) {
            echo rtrim("verdict $words: {$row['state']} {$row['error_text']}"), "\n";
            unset($waiting[$id]);
        }
    }
}

// PDO's own beginTransaction() is a deferred BEGIN: it fails at once beside another writer, whatever the timeout.
function immediate(PDO $db, callable $work): void
{
    $db->exec('BEGIN IMMEDIATE');
    try {
        $work();
        $db->exec('COMMIT');
    } catch (Throwable $error) {
        $db->exec('ROLLBACK');
        throw $error;
    }
}
