<?php
// A mini POS for orderbridge. PHP 7.4 or newer with pdo_sqlite.
//
//   php pos.php DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
//   php pos.php DATABASE VERB ARGUMENTS   an action of a person, while the till runs
//
//   accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (the waiting action)
//   open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
//   ticket KEY (all tickets of the order)   collect KEY (the amount to collect)
//
// The till takes orders over and accepts them. An order with a food that was switched off is cancelled. A scheduled
// order, or one with a `problem`, waits for a person. The till may be killed at any moment, and then continues: a
// ticket that may already be printed is printed again after a minute, with PERHAPS A SECOND COPY on it. Several tills
// may run on one file, also under one name; what one leaves for a minute, another one prints.

const TILL = 'K1'; // each till has its own name
const LOOK_US = 500000;
const READY_IN_MINUTES = 25;
const OUT_OF_STOCK = 1; // delivery_cancel_reasons

// The two tables of the POS guide. till_papers: the kitchen's tickets; a paper waits, is begun, or is out.
// till_asked: our actions whose results were not shown to a person yet.
const TABLES = "
    CREATE TABLE IF NOT EXISTS till_papers (
        payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL, till TEXT NOT NULL,
        ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', tries INTEGER NOT NULL DEFAULT 0,
        since INTEGER NOT NULL DEFAULT (strftime('%s', 'now')), PRIMARY KEY (payment_key, revision, kind));
    CREATE TABLE IF NOT EXISTS till_asked (request_id TEXT PRIMARY KEY, till TEXT NOT NULL);";
const OURS = "pos_reference LIKE '" . TILL . "-%'";
const CHANGED = ' FROM delivery_changed_orders WHERE ' . OURS . " OR (strftime('%s', 'now') - strftime('%s', changed_utc) > 60
    AND payment_key IN (SELECT payment_key FROM till_papers))"; // and those that another till left a minute ago
// Papers that another till or a printer left a minute ago are printed, too; of an ended order, only STOP.
const WAITING = "SELECT papers.rowid AS id, paper, tries, CASE WHEN tries > 0 THEN 'PERHAPS A SECOND COPY ' ELSE '' END
    || CASE WHEN till <> '" . TILL . "' THEN 'from ' || till || ' ' ELSE '' END || ticket AS ticket
    FROM till_papers AS papers JOIN delivery_orders AS orders ON orders.payment_key = papers.payment_key
    WHERE (kind = 'STOP' OR ended_utc IS NULL)
        AND ((paper = 'waits' AND till = '" . TILL . "') OR (paper <> 'out' AND since < strftime('%s', 'now') - 60))
    ORDER BY papers.rowid";
// is_later: more than an hour ahead, by this computer's time zone. NULL: not scheduled, or an unreadable time.
const ORDERS = "SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
    CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect";
// Whether the last switch of one of the order's foods was off.
const SOLD_OUT = "SELECT 1 FROM delivery_order_items AS item WHERE payment_key = ? AND 'deactivate_food' = (
    SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
        AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = ?) ORDER BY id DESC LIMIT 1)";
// Each item, its options below it, then its note. NULL: the platform sent no value.
const LINES = "SELECT line FROM (
    SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
        '  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
    UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
        || COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
    UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
) WHERE payment_key = ? ORDER BY line_no, part, option_no";
const TOLD = "SELECT ticket FROM till_papers WHERE payment_key = ? AND paper <> 'waits' ORDER BY rowid";
const LAMPS = "SELECT lamp, account, sentence, remedy FROM delivery_lamp
    UNION ALL SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)";
const VERBS = [ // the action, and the columns for its arguments
    'accept' => ['accept', 'payment_key', 'preparing_time'],
    'cancel' => ['cancel', 'payment_key', 'reason_id'],
    'on_the_way' => ['on_the_way', 'payment_key'],
    'complete' => ['complete', 'payment_key'],
    'open' => ['open_restaurant', 'restaurant_id'],
    'close' => ['close_restaurant', 'restaurant_id'],
    'food_off' => ['deactivate_food', 'food_id', 'restaurant_id'],
    'food_on' => ['activate_food', 'food_id', 'restaurant_id'],
];

if (!is_file($argv[1] ?? '')) { // never create an empty file
    exit_with(1, 'no such file; the head of this one says how it is started');
}
$db = new PDO('sqlite:' . $argv[1], null, null, [
    PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
    PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    PDO::ATTR_TIMEOUT => 5, // how long to wait for the daemon's transactions
]);
$db->exec(TABLES);
$verb = $argv[2] ?? '--orders';
if ($verb === '--orders') {
    run(isset($argv[3]) ? (int) $argv[3] : null);
} else {
    step($verb, array_slice($argv, 3));
}

function rows(string $sql, ...$values): array
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($values);
    return $statement->fetchAll(); // all rows, so that no read is open during a write
}

// The number of changed rows.
function write(string $sql, ...$values): int
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($values);
    return $statement->rowCount();
}

// PDO's own beginTransaction() is a deferred BEGIN: it fails at once beside another writer, whatever the timeout.
function transaction(callable $work)
{
    global $db;
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

function run(?int $orders): void
{
    // A ticket has customers' data: orderbridge blanks its own 90 days after the end, too.
    write("DELETE FROM till_papers WHERE payment_key IN
        (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))");
    $taken = 0;
    $lamps = [];
    while (true) {
        try {
            take_changed();
            $taken += take_new();
            take_scheduled();
            print_waiting();
            show_verdicts();
            $lamps = show_lamps($lamps);
        } catch (PDOException $error) {
            echo "!!! {$error->getMessage()}\n"; // perhaps a long lock: the next round tries again
        }
        $left = rows("SELECT 1 FROM till_asked WHERE till = '" . TILL . "' UNION ALL SELECT 1" . CHANGED);
        if ($orders !== null && $taken >= $orders && !$left) {
            return;
        }
        usleep(LOOK_US);
    }
}

// Take each new order over. Our number, the ticket and the answer are written together or not at all.
function take_new(): int
{
    $taken = 0;
    foreach (rows(ORDERS . ' FROM delivery_new_orders ORDER BY received_utc, payment_key') as $order) {
        $key = $order['payment_key'];
        $reference = TILL . "-{$order['order_number']}";
        $sold_out = $order['status'] === 'RECEIVED' && rows(SOLD_OUT, $key, $order['account']);
        $kind = $sold_out ? 'SOLD OUT' : ($order['is_later'] ? 'LATER' : 'NEW');
        $ticket = ticket_text($order, $kind, $reference);
        $taken += transaction(function () use ($order, $key, $reference, $sold_out, $kind, $ticket) {
            $mine = write(
                'UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?
                    WHERE payment_key = ? AND pos_revision = 0 AND ended_utc IS NULL',
                $order['revision'],
                $reference,
                $key
            );
            if (!$mine) {
                return 0; // another till has it, or it was cancelled after we read it
            }
            remember($order, $kind, $ticket);
            if ($sold_out) {
                ask_once(['action' => 'cancel', 'payment_key' => $key, 'reason_id' => OUT_OF_STOCK]);
            } else {
                accept($order);
            }
            return 1;
        });
    }
    return $taken;
}

function accept(array $order): void
{
    if ($order['status'] === 'RECEIVED' && !waits_for_person($order)) {
        $key = $order['payment_key'];
        ask_once(['action' => 'accept', 'payment_key' => $key, 'preparing_time' => READY_IN_MINUTES]);
    }
}

// The problem `total_mismatch` alone does not need a person before the accept.
function waits_for_person(array $order): bool
{
    foreach (explode(',', (string) $order['problem']) as $code) {
        if ($code !== '' && strpos($code, 'total_mismatch') !== 0) {
            return true;
        }
    }
    return $order['scheduled_for'] && ($order['is_later'] === null || $order['is_later']);
}

// Insert a row unless the action was requested before: only a person tries again.
function ask_once(array $columns): void
{
    $request = "{$columns['action']}-{$columns['payment_key']}";
    if (!rows('SELECT 1 FROM delivery_actions WHERE request_id = ?', $request)) {
        ask(['request_id' => $request] + $columns);
    }
}

// Insert a row into the outbox, and note that we wait for its result.
function ask(array $columns): void
{
    $names = implode(', ', array_keys($columns));
    $marks = str_repeat('?, ', count($columns));
    $values = array_values($columns);
    write("INSERT INTO delivery_actions ($names, created_by) VALUES ($marks'mini POS')", ...$values);
    write('INSERT INTO till_asked (request_id, till) VALUES (?, ?)', $columns['request_id'], TILL);
}

// Print the scheduled orders that are now due.
function take_scheduled(): void
{
    $due = ORDERS . ' FROM delivery_open_orders AS due WHERE ' . OURS . " AND COALESCE(is_later, 0) = 0
        AND EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'LATER')
        AND NOT EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'NOW')";
    foreach (rows($due) as $order) {
        $ticket = ticket_text($order, 'NOW', $order['pos_reference']);
        transaction(function () use ($order, $ticket) {
            remember($order, 'NOW', $ticket);
            accept($order);
        });
    }
}

// Read our changed orders. The revision that we read and the kitchen's ticket are written together.
function take_changed(): void
{
    foreach (rows(ORDERS . CHANGED . ' ORDER BY changed_utc, payment_key') as $order) {
        transaction(function () use ($order) {
            $noted = 'UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ? AND pos_revision < ?';
            if (write($noted, $order['revision'], $order['payment_key'], $order['revision'])) {
                tell_kitchen($order);
            }
        });
        echo "{$order['pos_reference']}: {$order['status']}", $order['ended_utc'] === null ? '' : ', over', "\n";
    }
}

function tell_kitchen(array $order): void
{
    $key = $order['payment_key'];
    $reference = $order['pos_reference'];
    if ($order['ended_utc'] !== null) { // first, because an ended order is never cooked
        write("DELETE FROM till_papers WHERE payment_key = ? AND paper = 'waits'", $key);
        write("UPDATE till_papers SET paper = 'out' WHERE payment_key = ? AND paper = 'begun'", $key);
    }
    $last = 'SELECT kind, revision FROM till_papers WHERE payment_key = ? ORDER BY rowid DESC LIMIT 1';
    $newest = rows($last, $key)[0] ?? ['kind' => null, 'revision' => 0];
    if ($order['ended_utc'] !== null) {
        // SOLD OUT: our own cancel, before the kitchen cooked; its result is shown anyway.
        if ($order['ended_by'] === 'cancelled' && !in_array($newest['kind'], [null, 'STOP', 'SOLD OUT'], true)) {
            remember($order, 'STOP', "STOP $reference\n  cancelled: do not cook it, do not send it out");
        }
    } elseif (in_array($newest['kind'], [null, 'STOP'], true) || $order['contents_revision'] > $newest['revision']) {
        remember($order, 'CHANGED', ticket_text($order, 'CHANGED', $reference)); // other items, notes or amounts
    }
}

function remember(array $order, string $kind, string $ticket): void
{
    $row = [$order['payment_key'], $order['revision'], $kind, TILL, $ticket];
    write('INSERT OR IGNORE INTO till_papers (payment_key, revision, kind, till, ticket) VALUES (?, ?, ?, ?, ?)', ...$row);
}

// The amount to collect, the items to cook, and remarks.
function ticket_text(array $order, string $kind, string $reference): string
{
    $lines = ["$kind $reference", "  collect: {$order['collect']}, " . ($order['payment_method'] ?? '?')];
    if ($kind === 'SOLD OUT') {
        $lines[] = '  do not cook it: we cancel it';
    }
    if ($order['scheduled_for']) {
        $lines[] = ($order['is_later'] ? '  not now: for ' : '  for ') . $order['scheduled_for'];
    }
    if ($order['problem']) {
        $lines[] = "  look at it in the platform's panel: {$order['problem']}";
    }
    if ($order['status'] === 'RECEIVED' && waits_for_person($order)) {
        $lines[] = "  a person must accept it: {$order['payment_key']}";
    }
    if ((string) $order['note'] !== '') {
        $lines[] = "  note: {$order['note']}";
    }
    return implode("\n", array_merge($lines, array_column(rows(LINES, $order['payment_key']), 'line')));
}

// After the COMMIT. If no row changed, another loop or till has begun it, or the order has ended.
function print_waiting(): void
{
    $begin = "UPDATE till_papers SET paper = 'begun', tries = tries + 1, since = strftime('%s', 'now')
        WHERE rowid = ? AND paper = ? AND tries = ?";
    foreach (rows(WAITING) as $row) {
        if (write($begin, $row['id'], $row['paper'], $row['tries'])) {
            echo $row['ticket'], "\n"; // print to your printer here
            write("UPDATE till_papers SET paper = 'out' WHERE rowid = ?", $row['id']);
        }
    }
}

// Show the cashier the result of each of our rows, failures with an alarm.
function show_verdicts(): void
{
    $ended = "SELECT asked.request_id, action, state, error_text,
        COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM till_asked AS asked
        JOIN delivery_actions AS actions ON actions.request_id = asked.request_id
        LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key
        WHERE till = '" . TILL . "' AND state NOT IN ('pending', 'sending') ORDER BY actions.id";
    foreach (rows($ended) as $row) {
        $loud = in_array($row['state'], ['refused', 'failed', 'expired'], true) ? '!!! ' : '';
        echo rtrim("$loud{$row['action']} {$row['about']}: {$row['state']} {$row['error_text']}"), "\n";
        write('DELETE FROM till_asked WHERE request_id = ?', $row['request_id']);
    }
}

// Show changes of the lamp of orderbridge itself. It is correct even if the daemon is dead.
function show_lamps(array $last): array
{
    $lamps = rows(LAMPS);
    foreach ($lamps as $lamp) {
        if (!in_array($lamp, $last, true) && ($last || $lamp['lamp'] !== 'green')) {
            echo rtrim("lamp {$lamp['lamp']}, {$lamp['account']}: {$lamp['sentence']} {$lamp['remedy']}"), "\n";
        }
    }
    return $lamps;
}

// A person's action: ends with 1 and a sentence if it failed, with 64 for an unknown action.
function step(string $verb, array $arguments): void
{
    $order = rows(ORDERS . ' FROM delivery_orders WHERE payment_key = ?', $arguments[0] ?? '')[0] ?? null;
    if (isset(VERBS[$verb]) && count($arguments) === count(VERBS[$verb]) - 1) {
        if (VERBS[$verb][1] === 'payment_key' && !$order) {
            exit_with(1, 'no such order');
        }
        if ($verb === 'on_the_way' && !in_array($order['courier_type'], [null, 'restaurant'], true)) {
            exit_with(1, "the restaurant does not bring it: {$order['courier_type']}");
        }
        click($verb, VERBS[$verb][0], array_combine(array_slice(VERBS[$verb], 1), $arguments));
    } elseif (!$order || !in_array($verb, ['ticket', 'collect', 'withdraw'], true)) {
        exit_with(64, 'no such order or no such verb; the head of this file has them');
    } elseif ($verb === 'collect') {
        echo $order['collect'], "\n";
    } elseif ($verb === 'ticket') {
        foreach (rows(TOLD, $arguments[0]) as $row) {
            echo $row['ticket'], "\n";
        }
    } elseif (!write("UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = ?
            AND state IN ('pending', 'sending')", $arguments[0])) {
        echo "nothing of it waits\n";
    }
}

// A new try has a new request_id: …, …-2, …-3. A double click is not a new try: it finds the first one's row.
function click(string $verb, string $action, array $columns): void
{
    $is_order = isset($columns['payment_key']);
    $request = $is_order ? "$verb-{$columns['payment_key']}" : "$verb-" . implode('-', $columns);
    try {
        transaction(function () use ($action, $columns, $is_order, $request) {
            $tries = rows("SELECT CASE WHEN EXISTS (SELECT 1 FROM delivery_actions AS newer WHERE newer.id > mine.id
                    AND newer.restaurant_id = mine.restaurant_id AND newer.food_id IS mine.food_id)
                  THEN 'switched back' ELSE state END AS state,
                finished_utc > datetime('now', '-10 seconds') AS is_fresh FROM delivery_actions AS mine
                WHERE request_id = ? OR request_id LIKE ? || '-%' ORDER BY id", $request, $request);
            $last = end($tries) ?: ['state' => null, 'is_fresh' => null];
            $waits = in_array($last['state'], ['pending', 'sending'], true);
            // An order is accepted once. A restaurant may be opened again tomorrow, but not twice by a double click.
            if ($waits || ($last['state'] === 'done' && ($is_order || $last['is_fresh']))) {
                echo "asked already: {$last['state']}\n";
            } else {
                $request .= $tries ? '-' . (count($tries) + 1) : '';
                ask(['request_id' => $request, 'action' => $action] + $columns);
            }
        });
    } catch (PDOException $error) {
        exit_with(1, "refused: {$error->getMessage()}"); // an error of the program or a wrong argument
    }
}

function exit_with(int $code, string $sentence): void
{
    fwrite(STDERR, "$sentence\n");
    exit($code);
}
