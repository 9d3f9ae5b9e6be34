// A mini POS for orderbridge. Node 22.5 or newer alone, or an older one with the package better-sqlite3.
//
//   node pos.js DATABASE [--orders N]     the till, until it is stopped or has taken N orders over
//   node pos.js DATABASE VERB ARGUMENTS   an action of a person, while the till runs
//
//   accept KEY MINUTES   cancel KEY REASON_ID   on_the_way KEY   complete KEY   withdraw KEY (the waiting action)
//   open RESTAURANT_ID   close RESTAURANT_ID   food_off FOOD_ID RESTAURANT_ID   food_on FOOD_ID RESTAURANT_ID
//   ticket KEY (all tickets of the order)   collect KEY (the amount to collect)
//
// The till takes orders over and accepts them. An order with a food that was switched off is cancelled. A scheduled
// order, or one with a `problem`, waits for a person. The till may be killed at any moment, and then continues: a
// ticket that may already be printed is printed again after a minute, with PERHAPS A SECOND COPY on it. Several tills
// may run on one file, also under one name; what one leaves for a minute, another one prints.
'use strict';

const fs = require('node:fs');

const TILL = 'K1'; // each till has its own name
const LOOK_MS = 500;
const READY_IN_MINUTES = 25;
const OUT_OF_STOCK = 1; // delivery_cancel_reasons

// The two tables of the POS guide. till_papers: the kitchen's tickets; a paper waits, is begun, or is out.
// till_asked: our actions whose results were not shown to a person yet.
const TABLES = `
  CREATE TABLE IF NOT EXISTS till_papers (
    payment_key TEXT NOT NULL, revision INTEGER NOT NULL, kind TEXT NOT NULL, till TEXT NOT NULL,
    ticket TEXT NOT NULL, paper TEXT NOT NULL DEFAULT 'waits', tries INTEGER NOT NULL DEFAULT 0,
    since INTEGER NOT NULL DEFAULT (strftime('%s', 'now')), PRIMARY KEY (payment_key, revision, kind));
  CREATE TABLE IF NOT EXISTS till_asked (request_id TEXT PRIMARY KEY, till TEXT NOT NULL);`;
const OURS = `pos_reference LIKE '${TILL}-%'`;
const CHANGED = `delivery_changed_orders WHERE ${OURS} OR (strftime('%s', 'now') - strftime('%s', changed_utc) > 60
  AND payment_key IN (SELECT payment_key FROM till_papers))`; // and those that another till left a minute ago
// Papers that another till or a printer left a minute ago are printed, too; of an ended order, only STOP.
const WAITING = `SELECT papers.rowid AS id, paper, tries, CASE WHEN tries > 0 THEN 'PERHAPS A SECOND COPY ' ELSE '' END
    || CASE WHEN till <> '${TILL}' THEN 'from ' || till || ' ' ELSE '' END || ticket AS ticket
  FROM till_papers AS papers JOIN delivery_orders AS orders ON orders.payment_key = papers.payment_key
  WHERE (kind = 'STOP' OR ended_utc IS NULL)
    AND ((paper = 'waits' AND till = '${TILL}') OR (paper <> 'out' AND since < strftime('%s', 'now') - 60))
  ORDER BY papers.rowid`;
// is_later: more than an hour ahead, by this computer's time zone. NULL: not scheduled, or an unreadable time.
const ORDERS = `SELECT *, datetime(scheduled_for) > datetime('now', 'localtime', '+60 minutes') AS is_later,
  CASE WHEN amount_due IS NULL THEN 'ask' ELSE printf('%.2f', amount_due) END AS collect`;
// Whether the last switch of one of the order's foods was off.
const SOLD_OUT = `SELECT 1 FROM delivery_order_items AS item WHERE payment_key = ? AND 'deactivate_food' = (
  SELECT action FROM delivery_actions WHERE food_id = item.food_id AND state IN ('pending', 'sending', 'done')
    AND restaurant_id IN (SELECT id FROM delivery_restaurants WHERE account = ?) ORDER BY id DESC LIMIT 1)`;
// Each item, its options below it, then its note. NULL: the platform sent no value.
const LINES = `SELECT line FROM (
  SELECT payment_key, line_no, 1 AS part, 0 AS option_no,
    '  ' || COALESCE(quantity, '?') || ' x ' || COALESCE(name, '?') AS line FROM delivery_order_items
  UNION ALL SELECT payment_key, line_no, 2, option_no, '    ' || COALESCE(operation, '?') || ' '
    || COALESCE(group_name, '?') || ': ' || COALESCE(option_name, '?') FROM delivery_order_item_options
  UNION ALL SELECT payment_key, line_no, 3, 0, '    note: ' || note FROM delivery_order_items WHERE note <> ''
) WHERE payment_key = ? ORDER BY line_no, part, option_no`;
const TOLD = "SELECT ticket FROM till_papers WHERE payment_key = ? AND paper <> 'waits' ORDER BY rowid";
const LAMPS = `SELECT lamp, account, sentence, remedy FROM delivery_lamp
  UNION ALL SELECT 'red', '?', 'orderbridge has not run yet', NULL WHERE NOT EXISTS (SELECT 1 FROM delivery_lamp)`;
const VERBS = { // the action, and the columns for its arguments
  accept: ['accept', 'payment_key', 'preparing_time'],
  cancel: ['cancel', 'payment_key', 'reason_id'],
  on_the_way: ['on_the_way', 'payment_key'],
  complete: ['complete', 'payment_key'],
  open: ['open_restaurant', 'restaurant_id'],
  close: ['close_restaurant', 'restaurant_id'],
  food_off: ['deactivate_food', 'food_id', 'restaurant_id'],
  food_on: ['activate_food', 'food_id', 'restaurant_id'],
};

const [path, verb = '--orders', ...words] = process.argv.slice(2);
fs.accessSync(path); // never create an empty file
const db = open(path);
db.exec('PRAGMA busy_timeout = 5000'); // how long to wait for the daemon's transactions
db.exec(TABLES);
if (verb === '--orders') run(words.length > 0 ? Number(words[0]) : null);
else process.exitCode = step(...words);

function open(file) {
  try {
    const { DatabaseSync } = require('node:sqlite');
    return new DatabaseSync(file);
  } catch (error) {
    if (error.code !== 'ERR_UNKNOWN_BUILTIN_MODULE') throw error;
    return new (require('better-sqlite3'))(file); // the same calls
  }
}

function rows(sql, ...values) {
  return db.prepare(sql).all(...values); // all rows, so that no read is open during a write
}

// The number of changed rows.
function write(sql, ...values) {
  return Number(db.prepare(sql).run(...values).changes);
}

function transaction(work) {
  db.exec('BEGIN IMMEDIATE'); // a deferred BEGIN fails at once beside another writer, whatever the timeout
  try {
    const result = work();
    db.exec('COMMIT');
    return result;
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}

function run(orders) {
  // A ticket has customers' data: orderbridge blanks its own 90 days after the end, too.
  write(`DELETE FROM till_papers WHERE payment_key IN
    (SELECT payment_key FROM delivery_orders WHERE ended_utc < datetime('now', '-90 days'))`);
  let taken = 0;
  let lamps = [];
  look();

  function look() {
    try {
      takeChanged();
      taken += takeNew();
      takeScheduled();
      printWaiting();
      showVerdicts();
      lamps = showLamps(lamps);
    } catch (error) {
      say(`!!! ${error.message}`); // perhaps a long lock: the next round tries again
    }
    const left = rows(`SELECT 1 FROM till_asked WHERE till = '${TILL}' UNION ALL SELECT 1 FROM ${CHANGED}`);
    if (orders === null || taken < orders || left.length > 0) setTimeout(look, LOOK_MS);
  }
}

// Take each new order over. Our number, the ticket and the answer are written together or not at all.
function takeNew() {
  let taken = 0;
  for (const order of rows(`${ORDERS} FROM delivery_new_orders ORDER BY received_utc, payment_key`)) {
    const key = order.payment_key;
    const reference = `${TILL}-${order.order_number}`;
    const soldOut = order.status === 'RECEIVED' && rows(SOLD_OUT, key, order.account).length > 0;
    const kind = soldOut ? 'SOLD OUT' : order.is_later ? 'LATER' : 'NEW';
    const ticket = ticketText(order, kind, reference);
    taken += transaction(() => {
      const mine = write(
        `UPDATE delivery_orders SET pos_revision = ?, pos_reference = ?
           WHERE payment_key = ? AND pos_revision = 0 AND ended_utc IS NULL`,
        order.revision, reference, key
      );
      if (mine === 0) return 0; // another till has it, or it was cancelled after we read it
      remember(order, kind, ticket);
      if (soldOut) askOnce({ action: 'cancel', payment_key: key, reason_id: OUT_OF_STOCK });
      else accept(order);
      return 1;
    });
  }
  return taken;
}

function accept(order) {
  if (order.status !== 'RECEIVED' || waitsForPerson(order)) return;
  askOnce({ action: 'accept', payment_key: order.payment_key, preparing_time: READY_IN_MINUTES });
}

// The problem `total_mismatch` alone does not need a person before the accept.
function waitsForPerson(order) {
  const doubts = (order.problem ?? '').split(',').filter((code) => code && !code.startsWith('total_mismatch'));
  return doubts.length > 0 || (order.scheduled_for && order.is_later !== 0);
}

// Insert a row unless the action was requested before: only a person tries again.
function askOnce(columns) {
  const request = `${columns.action}-${columns.payment_key}`;
  if (rows('SELECT 1 FROM delivery_actions WHERE request_id = ?', request).length === 0) {
    ask({ request_id: request, ...columns });
  }
}

// Insert a row into the outbox, and note that we wait for its result.
function ask(columns) {
  const names = Object.keys(columns);
  write(
    `INSERT INTO delivery_actions (${names.join(', ')}, created_by) VALUES (${'?, '.repeat(names.length)}'mini POS')`,
    ...Object.values(columns)
  );
  write('INSERT INTO till_asked (request_id, till) VALUES (?, ?)', columns.request_id, TILL);
}

// Print the scheduled orders that are now due.
function takeScheduled() {
  for (const order of rows(`${ORDERS} FROM delivery_open_orders AS due WHERE ${OURS} AND COALESCE(is_later, 0) = 0
      AND EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'LATER')
      AND NOT EXISTS (SELECT 1 FROM till_papers WHERE payment_key = due.payment_key AND kind = 'NOW')`)) {
    const ticket = ticketText(order, 'NOW', order.pos_reference);
    transaction(() => {
      remember(order, 'NOW', ticket);
      accept(order);
    });
  }
}

// Read our changed orders. The revision that we read and the kitchen's ticket are written together.
function takeChanged() {
  for (const order of rows(`${ORDERS} FROM ${CHANGED} ORDER BY changed_utc, payment_key`)) {
    transaction(() => {
      const noted = 'UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ? AND pos_revision < ?';
      if (write(noted, order.revision, order.payment_key, order.revision) > 0) tellKitchen(order);
    });
    say(`${order.pos_reference}: ${order.status}${order.ended_utc === null ? '' : ', over'}`);
  }
}

function tellKitchen(order) {
  const { payment_key: key, pos_reference: reference } = order;
  if (order.ended_utc !== null) { // first, because an ended order is never cooked
    write("DELETE FROM till_papers WHERE payment_key = ? AND paper = 'waits'", key);
    write("UPDATE till_papers SET paper = 'out' WHERE payment_key = ? AND paper = 'begun'", key);
  }
  const last = 'SELECT kind, revision FROM till_papers WHERE payment_key = ? ORDER BY rowid DESC LIMIT 1';
  const newest = rows(last, key)[0] ?? { kind: null, revision: 0 };
  if (order.ended_utc !== null) {
    // SOLD OUT: our own cancel, before the kitchen cooked; its result is shown anyway.
    if (order.ended_by === 'cancelled' && ![null, 'STOP', 'SOLD OUT'].includes(newest.kind)) {
      remember(order, 'STOP', `STOP ${reference}\n  cancelled: do not cook it, do not send it out`);
    }
  } else if ([null, 'STOP'].includes(newest.kind) || order.contents_revision > newest.revision) {
    remember(order, 'CHANGED', ticketText(order, 'CHANGED', reference)); // other items, notes or amounts
  }
}

function remember(order, kind, ticket) {
  write(
    'INSERT OR IGNORE INTO till_papers (payment_key, revision, kind, till, ticket) VALUES (?, ?, ?, ?, ?)',
    order.payment_key, order.revision, kind, TILL, ticket
  );
}

// The amount to collect, the items to cook, and remarks.
function ticketText(order, kind, reference) {
  const lines = [`${kind} ${reference}`, `  collect: ${order.collect}, ${order.payment_method || '?'}`];
  if (kind === 'SOLD OUT') lines.push('  do not cook it: we cancel it');
  if (order.scheduled_for) lines.push(`  ${order.is_later ? 'not now: for' : 'for'} ${order.scheduled_for}`);
  if (order.problem) lines.push(`  look at it in the platform's panel: ${order.problem}`);
  if (order.status === 'RECEIVED' && waitsForPerson(order)) {
    lines.push(`  a person must accept it: ${order.payment_key}`);
  }
  if (order.note) lines.push(`  note: ${order.note}`);
  return [...lines, ...rows(LINES, order.payment_key).map((row) => row.line)].join('\n');
}

// After the COMMIT. If no row changed, another loop or till has begun it, or the order has ended.
function printWaiting() {
  const begin = `UPDATE till_papers SET paper = 'begun', tries = tries + 1, since = strftime('%s', 'now')
    WHERE rowid = ? AND paper = ? AND tries = ?`;
  for (const { id, paper, tries, ticket } of rows(WAITING)) {
    if (write(begin, id, paper, tries) === 0) continue;
    say(ticket); // print to your printer here
    write("UPDATE till_papers SET paper = 'out' WHERE rowid = ?", id);
  }
}

// Show the cashier the result of each of our rows, failures with an alarm.
function showVerdicts() {
  for (const row of rows(`SELECT asked.request_id, action, state, error_text,
      COALESCE(pos_reference, food_id, actions.restaurant_id) AS about FROM till_asked AS asked
      JOIN delivery_actions AS actions ON actions.request_id = asked.request_id
      LEFT JOIN delivery_orders AS orders ON orders.payment_key = actions.payment_key
      WHERE till = '${TILL}' AND state NOT IN ('pending', 'sending') ORDER BY actions.id`)) {
    const loud = ['refused', 'failed', 'expired'].includes(row.state) ? '!!! ' : '';
    say(`${loud}${row.action} ${row.about}: ${row.state} ${row.error_text ?? ''}`.trimEnd());
    write('DELETE FROM till_asked WHERE request_id = ?', row.request_id);
  }
}

// Show changes of the lamp of orderbridge itself. It is correct even if the daemon is dead.
function showLamps(last) {
  const lamps = rows(LAMPS)
    .map((row) => [row.lamp, `lamp ${row.lamp}, ${row.account}: ${row.sentence} ${row.remedy ?? ''}`.trimEnd()]);
  for (const [lamp, words] of lamps) {
    if (!last.includes(words) && (last.length > 0 || lamp !== 'green')) say(words);
  }
  return lamps.map(([, words]) => words);
}

function say(text) {
  fs.writeSync(1, `${text}\n`); // it is written before we continue
}

// A person's action: 1 with a sentence if it failed, 64 for an unknown action, 0 when it is done.
function step(...values) {
  const [order] = rows(`${ORDERS} FROM delivery_orders WHERE payment_key = ?`, values[0] ?? '');
  if (Object.hasOwn(VERBS, verb) && values.length === VERBS[verb].length - 1) {
    const [action, ...names] = VERBS[verb];
    if (names[0] === 'payment_key' && order === undefined) return wrong('no such order');
    if (verb === 'on_the_way' && (order.courier_type ?? 'restaurant') !== 'restaurant') {
      return wrong(`the restaurant does not bring it: ${order.courier_type}`);
    }
    return click(action, Object.fromEntries(names.map((name, place) => [name, values[place]])));
  }
  if (!['ticket', 'collect', 'withdraw'].includes(verb) || order === undefined) {
    return wrong('no such order or no such verb; the head of this file has them', 64);
  }
  if (verb === 'collect') say(order.collect);
  if (verb === 'ticket') rows(TOLD, order.payment_key).forEach((row) => say(row.ticket));
  if (verb === 'withdraw' && write(
    "UPDATE delivery_actions SET withdraw = 1 WHERE payment_key = ? AND state IN ('pending', 'sending')",
    order.payment_key
  ) === 0) say('nothing of it waits');
  return 0;
}

// A new try has a new request_id: …, …-2, …-3. A double click is not a new try: it finds the first one's row.
function click(action, columns) {
  const isOrder = 'payment_key' in columns;
  const request = [verb, ...(isOrder ? [columns.payment_key] : Object.values(columns))].join('-');
  try {
    transaction(() => {
      const tries = rows(
        `SELECT CASE WHEN EXISTS (SELECT 1 FROM delivery_actions AS newer WHERE newer.id > mine.id
               AND newer.restaurant_id = mine.restaurant_id AND newer.food_id IS mine.food_id)
             THEN 'switched back' ELSE state END AS state,
           finished_utc > datetime('now', '-10 seconds') AS is_fresh FROM delivery_actions AS mine
           WHERE request_id = ? OR request_id LIKE ? || '-%' ORDER BY id`, request, request
      );
      const { state, is_fresh: isFresh } = tries[tries.length - 1] ?? {};
      // An order is accepted once. A restaurant may be opened again tomorrow, but not twice by a double click.
      if (['pending', 'sending'].includes(state) || (state === 'done' && (isOrder || isFresh))) {
        say(`asked already: ${state}`);
      } else {
        ask({ request_id: tries.length > 0 ? `${request}-${tries.length + 1}` : request, action, ...columns });
      }
    });
  } catch (error) {
    if (!/constraint failed|leave them out/.test(error.message)) throw error;
    return wrong(`refused: ${error.message}`); // an error of the program or a wrong argument
  }
  return 0;
}

function wrong(sentence, code = 1) {
  console.error(sentence);
  return code;
}
