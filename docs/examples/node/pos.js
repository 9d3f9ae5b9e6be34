// A mini POS for orderbridge. Node 22.5 or newer alone, or an older one with the package better-sqlite3.
//
//   node pos.js DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped. Several may run on one file, and each may be stopped at any moment.
'use strict';

const LOOK_MS = 500;
const READY_IN_MINUTES = 25;
const OUT_OF_STOCK = 1; // delivery_cancel_reasons

function open(path) {
  try {
    const { DatabaseSync } = require('node:sqlite');
    return new DatabaseSync(path);
  } catch (error) {
    if (error.code !== 'ERR_UNKNOWN_BUILTIN_MODULE') throw error;
    return new (require('better-sqlite3'))(path); // the same calls
  }
}

const path = process.argv[2];
const account = process.argv[3];
const foodId = Number(process.argv[4]);
const orders = Number(process.argv[5] || 0);
const db = open(path);
db.exec('PRAGMA busy_timeout = 5000'); // wait that long for the daemon's transactions

showOpen();
immediate(() => ask({ action: 'deactivate_food', account, food_id: foodId }));
const waiting = new Set( // our rows without a verdict, an earlier run's among them
  db.prepare("SELECT id FROM delivery_actions WHERE created_by = 'mini POS' AND state IN ('pending', 'sending')")
    .all().map((row) => row.id)
);

let taken = 0;
const timer = setInterval(look, LOOK_MS);
look();

function look() {
  taken += takeNew();
  showVerdicts();
  showChanged();
  if (orders > 0 && taken >= orders && waiting.size === 0) clearInterval(timer);
}

// An earlier run may have stopped before it had printed what it took over: show it again.
function showOpen() {
  const ours = "SELECT * FROM delivery_open_orders WHERE pos_reference LIKE 'A-%' ORDER BY received_utc, payment_key";
  for (const order of db.prepare(ours).all()) {
    console.log(`open ${order.pos_reference}: ${order.status}`);
    show(order);
  }
}

// Take each new order over and ask for what becomes of it, in one transaction. Only then print it.
function takeNew() {
  const holdsFood = db.prepare('SELECT 1 FROM delivery_order_items WHERE payment_key = ? AND food_id = ?');
  const takeOver = db.prepare(
    'UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ? AND pos_revision = 0'
  );
  let mine = 0;
  for (const order of db.prepare('SELECT * FROM delivery_new_orders ORDER BY received_utc, payment_key').all()) {
    const key = order.payment_key;
    const reference = `A-${order.order_number}`;
    const soldOut = holdsFood.get(key, foodId) !== undefined;
    const changed = immediate(() => {
      const rows = Number(takeOver.run(order.revision, reference, key).changes);
      if (rows === 0 || order.status !== 'RECEIVED') return rows; // the customer has been answered already
      waiting.add(soldOut
        ? ask({ request_id: `cancel-${key}`, action: 'cancel', payment_key: key, reason_id: OUT_OF_STOCK })
        : ask({ request_id: `accept-${key}`, action: 'accept', payment_key: key, preparing_time: READY_IN_MINUTES }));
      return rows;
    });
    if (changed === 0) continue; // another till has it, and prints it
    console.log(`new ${reference}`);
    show(order);
    mine += 1;
  }
  return mine;
}

// What to collect, what to cook, and what else to know. A NULL says "?": the service did not say.
function show(order) {
  const due = order.amount_due; // NULL is no 0: nobody knows
  console.log(`  ${due === null ? 'ask what to collect' : `collect ${due.toFixed(2)}`}, ${order.payment_method ?? '?'}`);
  if (order.scheduled_for) console.log(`  not now: for ${order.scheduled_for}`);
  if (order.problem) console.log(`  look at it in the service's panel: ${order.problem}`);
  if (order.note) console.log(`  note: ${order.note}`);
  const items = db.prepare('SELECT * FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no');
  const options = db.prepare(
    'SELECT * FROM delivery_order_item_options WHERE payment_key = ? AND line_no = ? ORDER BY option_no'
  );
  for (const item of items.all(order.payment_key)) {
    console.log(`  ${item.quantity ?? '?'} x ${item.name ?? '?'}`);
    for (const option of options.all(order.payment_key, item.line_no)) {
      console.log(`    ${option.operation ?? '?'} ${option.group_name ?? '?'}: ${option.option_name ?? '?'}`);
    }
    if (item.note) console.log(`    note: ${item.note}`);
  }
}

// A row in the outbox: its id. What was asked for under the same request_id is not asked for again.
function ask(columns) {
  const asked = db.prepare('SELECT id FROM delivery_actions WHERE request_id = ?').get(columns.request_id ?? null);
  if (asked) return asked.id;
  const row = { ...columns, created_by: 'mini POS' };
  const names = Object.keys(row);
  const written = db.prepare(
    `INSERT INTO delivery_actions (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`
  ).run(...Object.values(row));
  return Number(written.lastInsertRowid);
}

// Show what became of the orders that we have, and note the revision that we have shown.
function showChanged() {
  const ours = "SELECT * FROM delivery_changed_orders WHERE pos_reference LIKE 'A-%' ORDER BY changed_utc";
  const note = db.prepare('UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?');
  for (const order of db.prepare(ours).all()) {
    console.log(`changed ${order.pos_reference}: ${order.status} (${order.last_change})`);
    if (order.ended_utc) console.log(`  STOP: ${order.ended_by}`); // what is over is never printed to be cooked
    else if (order.contents_revision > order.pos_revision) show(order); // other items, notes or money than we have printed
    immediate(() => note.run(order.revision, order.payment_key));
  }
}

// Tell the cashier how each row ended.
function showVerdicts() {
  const ended = db.prepare(
    `SELECT action, food_id, pos_reference, state, error_text FROM delivery_actions
       LEFT JOIN delivery_orders ON delivery_orders.payment_key = delivery_actions.payment_key
      WHERE id = ? AND state NOT IN ('pending', 'sending')`
  );
  for (const id of [...waiting]) {
    const row = ended.get(id);
    if (row) {
      const about = row.pos_reference ?? row.food_id;
      console.log(`verdict ${row.action} ${about}: ${row.state} ${row.error_text ?? ''}`.trimEnd());
      waiting.delete(id);
    }
  }
}

function immediate(work) {
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
