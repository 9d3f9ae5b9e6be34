// A mini POS for orderbridge. Node 22.5 or newer alone, or an older one with the package better-sqlite3.
//
//   node pos.js DATABASE ACCOUNT FOOD_ID [ORDERS]
//
// It switches a food of that account off, then takes orders over: one that holds the food is cancelled, any
// other accepted. With ORDERS it ends after so many orders, once everything that it asked for has its verdict;
// without, it runs until it is stopped.
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

const waiting = new Map(); // our rows without a verdict: id, and what we call it
immediate(() => ask(`deactivate_food ${foodId}`, { action: 'deactivate_food', account, food_id: foodId }));

let taken = 0;
const timer = setInterval(look, LOOK_MS);
look();

function look() {
  taken += takeNew();
  showVerdicts();
  showChanged();
  if (orders > 0 && taken >= orders && waiting.size === 0) clearInterval(timer);
}

// Print each new order, then say that we have it and what becomes of it, in one transaction.
function takeNew() {
  const fresh = db.prepare(
    `SELECT payment_key, revision, order_number, status, payment_method, COALESCE(ROUND(total, 2), 0) AS total,
            problem
       FROM delivery_new_orders ORDER BY received_utc`
  ).all();
  const itemsOf = db.prepare(
    'SELECT quantity, name, food_id FROM delivery_order_items WHERE payment_key = ? ORDER BY line_no'
  );
  for (const order of fresh) {
    const key = order.payment_key;
    const reference = `A-${order.order_number}`;
    console.log(`new ${reference}: ${order.total.toFixed(2)} ${order.payment_method}`);
    if (order.problem) console.log(`  look at it in the service's panel: ${order.problem}`);
    let soldOut = false;
    for (const item of itemsOf.all(key)) {
      console.log(`  ${item.quantity} x ${item.name}`);
      soldOut = soldOut || item.food_id === foodId;
    }
    immediate(() => {
      db.prepare('UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?')
        .run(order.revision, reference, key);
      if (order.status !== 'RECEIVED') return; // somebody has answered the customer already
      if (soldOut) {
        ask(`cancel ${reference}`, { action: 'cancel', payment_key: key, reason_id: OUT_OF_STOCK });
      } else {
        ask(`accept ${reference}`, { action: 'accept', payment_key: key, preparing_time: READY_IN_MINUTES });
      }
    });
  }
  return fresh.length;
}

// A row in the outbox. A constraint that it breaks is an error of this program, and throws.
function ask(words, columns) {
  const row = { ...columns, created_by: 'mini POS' };
  const names = Object.keys(row);
  const written = db.prepare(
    `INSERT INTO delivery_actions (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`
  ).run(...Object.values(row));
  waiting.set(Number(written.lastInsertRowid), words);
}

// Show what became of the orders that we have, and note the revision that we have shown.
function showChanged() {
  const changed = db.prepare(
    `SELECT payment_key, revision, pos_reference, status, last_change
       FROM delivery_changed_orders ORDER BY changed_utc`
  ).all();
  for (const order of changed) {
    console.log(`changed ${order.pos_reference}: ${order.status} (${order.last_change})`);
    immediate(() => {
      db.prepare('UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?')
        .run(order.revision, order.payment_key);
    });
  }
}

// Tell the cashier how each row ended.
function showVerdicts() {
  const ended = db.prepare(
    "SELECT state, error_text FROM delivery_actions WHERE id = ? AND state NOT IN ('pending', 'sending')"
  );
  for (const [id, words] of [...waiting]) {
    const row = ended.get(id);
    if (row) {
      console.log(`verdict ${words}: ${row.state} ${row.error_text || ''}`.trimEnd());
      waiting.delete(id);
    }
  }
}

function immediate(work) {
  db.exec('BEGIN IMMEDIATE');
  try {
    work();
    db.exec('COMMIT');
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}
