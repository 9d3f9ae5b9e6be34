// The cards on the page, their numbers, and the taps on them.

import { day, el, language, post, say } from "./common.js";
import { ageOf, cardOf, countdown, numberOf } from "./card.js";
import { closeDialog, dialog } from "./dialog.js";
import { inOrder, pack, place, share } from "./lanes.js";
import { isPressed, move, READY_MS, rest, restLeft, steady, whenLifted } from "./steady.js";

const REST_MS = 3000; // how long a gap stays, and without a touch for so long, the columns may be divided anew
const LULL_MS = 1000; // without a touch for so long, gaps may close
const KEYS = 9;
const KEY_RESTS_MS = 5000; // a freed number is unused for so long, so that a key meant for one order does not act on another
const ALERTS = 20;
const ALERT_MS = 10000;
const ANSWER_MS = 900; // a missing answer is shown within a second

const $ = (id) => document.getElementById(id);
const announced = new Set();
const answered = new Set(); // keys of orders whose result the next state shows
const failed = new Map(); // by key: why the last tap failed, and the row that was shown then
const sending = new Map(); // by key: the sentence of a tap that is not answered yet
const numbers = new Map(); // by number: the order's key, or when it became free
export const cards = new Map(); // by key: the element, what it shows, and when each of its buttons appeared

export const numbered = (number) => cards.get(numbers.get(number)?.key)?.element;
export const isSending = (key) => sending.has(key);

// The new state includes the answered taps.
export function settle() {
  for (const key of answered) sending.delete(key);
  answered.clear();
}

export function paint(state, now, restedMs) {
  if (!$("cards") || !state) return;
  whenLifted("cards", () => steady(".card[data-key]", () => draw(state, now, restedMs)));
}

function draw(state, now, restedMs) {
  if (!$("cards")) return; // another page was opened meanwhile
  const about = {
    role: state.role, customers: state.customers, timezone: state.timezone, usual: state.usual, now: now(),
    isOneOfMany: new Set(state.orders.map((one) => one.restaurant)).size > 1 || state.open.length + state.closed.length > 1,
  };
  const there = new Set(state.orders.map((one) => one.key));
  const active = /** @type {HTMLElement | null} */ (document.activeElement);
  const focused = /** @type {HTMLElement | null | undefined} */ (active?.closest(".card[data-key]"))?.dataset.key;
  const { do: part = "" } = active?.dataset ?? {};
  for (const [key, card] of cards) if (!there.has(key)) leave(key, card.element);
  for (const order of state.orders) put(order, about);
  place(inOrder(state.orders).map((order) => [order, cards.get(order.key).element]));
  const element = cards.get(focused)?.element;
  if (element && !element.contains(document.activeElement)) (element.querySelector(`[data-do="${part}"]`) ?? element).focus({ preventScroll: true });
  if (restedMs > LULL_MS) dropGaps();
  share(restedMs > REST_MS);
  pack();
  number();
  $("empty").hidden = state.orders.length > 0;
}

function put(order, about) {
  if (order.stop && dialog()?.dataset.key === order.key) closeDialog(); // it may show the customer
  if (failed.has(order.key) && failed.get(order.key).row !== JSON.stringify(order.row)) failed.delete(order.key);
  const own = { ...about, tapped: sending.get(order.key), failure: failed.get(order.key)?.text };
  const shown = JSON.stringify([order, language(), own, day(about.now, about.timezone)], (name, value) => (name === "now" ? undefined : value));
  const known = cards.get(order.key);
  if (known?.shown === shown) return;
  const made = cardOf(order, own);
  if (known && known.order.lane !== order.lane) known.element.replaceWith(gapOf(known.element));
  else known?.element.replaceWith(made);
  const card = { element: made, order, shown, born: bornOf(made, known, own.tapped) };
  cards.set(order.key, card);
  paintAge(card, about.now);
  if (known) made.style.gridRowEnd = known.element.style.gridRowEnd;
  announce(order);
  if (!made.isConnected) document.querySelector(`.lane.${order.lane} .stack`).append(made);
  if (known && known.element.dataset.step !== made.dataset.step) move(made, [{ opacity: 0.4 }, { opacity: 1 }]);
}

// When each button appeared. A new button ignores touches at first, because something else was in its place. A tapped
// button whose tap failed works again at once.
function bornOf(made, known, isTapped) {
  const born = new Map(isTapped ? known?.born : []);
  const now = performance.now();
  for (const one of made.querySelectorAll("button[data-do]")) {
    const kind = one.dataset.do;
    born.set(kind, known?.born.get(kind) ?? now);
    const before = known?.element.querySelector(`[data-do="${kind}"]`);
    rest([one], "born", READY_MS - (now - born.get(kind)));
    if (before) rest([one], "moved", restLeft(before, "moved"));
  }
  return born;
}

// An empty place of the element's size.
function gapOf(element) {
  const gap = el("div", { class: `card gone ${element.classList.contains("wide") ? "wide" : ""}` });
  gap.style.height = `${element.offsetHeight}px`;
  gap.dataset.since = String(performance.now());
  return gap;
}

function leave(key, element) {
  element.replaceWith(gapOf(element));
  cards.delete(key);
  for (const kind of ["new", "stop"]) announced.delete(kind + key);
  sending.delete(key);
  failed.delete(key);
  if (dialog()?.dataset.key === key) closeDialog();
}

function dropGaps() {
  for (const one of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".card.gone"))) {
    if (performance.now() - Number(one.dataset.since) > REST_MS) one.remove();
  }
}

// Close the gaps after a moment without a touch; otherwise they would push waiting orders out of sight in a rush.
export function closeGaps(restedMs, state) {
  if (!$("cards") || !state || isPressed() || restedMs < LULL_MS) return;
  steady(".card[data-key]", () => {
    dropGaps();
    place(inOrder(state.orders).filter((order) => cards.has(order.key)).map((order) => [order, cards.get(order.key).element]));
    share(restedMs > REST_MS);
    pack();
    number();
  });
}

// Give each card a number, which it keeps while it is shown.
function number() {
  const now = performance.now();
  for (const [slot, { key }] of numbers) if (key && !cards.has(key)) numbers.set(slot, { key: null, since: now });
  const has = new Set([...numbers.values()].map((one) => one.key));
  const free = Array.from({ length: KEYS }, (_, place) => place + 1).filter((slot) => {
    const known = numbers.get(slot);
    return !known || (!known.key && now - known.since > KEY_RESTS_MS);
  });
  for (const { dataset } of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".card[data-key]"))) {
    if (!has.has(dataset.key) && free.length) numbers.set(free.shift(), { key: dataset.key, since: now });
  }
  for (const card of cards.values()) card.element.querySelector(".slot").textContent = "";
  for (const [slot, { key }] of numbers) if (key) cards.get(key).element.querySelector(".slot").textContent = String(slot);
}

export function paintAge({ element, order }, now) {
  const age = element.querySelector(".age");
  const { figure, word, step } = ageOf(order, now);
  if (age.textContent !== `${figure} ${word}`) age.replaceChildren(el("b", {}, figure), " ", el("span", {}, word));
  if (element.dataset.step !== step) element.dataset.step = step;
  countdown(element, order, now);
}

function announce(order) {
  const kind = order.stop ? "stop" : order.sounds.includes("new") ? "new" : "";
  const mark = kind + order.key;
  if (!kind || announced.has(mark)) return;
  announced.add(mark);
  const alert = el("p", { role: "alert" }, say(kind === "stop" ? "announce_stop" : "announce", { number: order.number ?? "?", restaurant: order.restaurant ?? "" }));
  $("alerts").append(alert);
  while ($("alerts").children.length > ALERTS) $("alerts").firstChild.remove();
  setTimeout(() => alert.remove(), ALERT_MS);
}

// Send a tap. Its card shows it at once; `repaint` paints without a new state. Without an answer in time the button works
// again: repeated taps make one row.
export async function send(order, name, values, shown, repaint) {
  sending.set(order.key, shown);
  failed.delete(order.key);
  repaint();
  const late = setTimeout(() => { fail(order, { text: say("no_answer") }); repaint(); }, ANSWER_MS);
  const { status, data } = await post(name, values);
  clearTimeout(late);
  if (status === 200 && sending.has(order.key)) answered.add(order.key); // no tap on it until the state shows the result
  else if (status === 200) failed.delete(order.key);
  else fail(order, data);
  repaint();
}

// The failure stays until the card is tapped again or its row changes: the person may have turned away.
export function fail(order, data) {
  sending.delete(order.key);
  failed.set(order.key, { text: data.text ?? say("not_sent"), row: JSON.stringify(order.row) });
}

// The numbers of the orders whose last tap failed.
export const failedTaps = () => [...failed.keys()].filter((key) => cards.has(key)).map((key) => numberOf(cards.get(key).order));

export const forget = () => cards.clear();
