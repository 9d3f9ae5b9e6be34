// The cards on the page. Nothing moves under a finger: a new one comes last, one that goes leaves its place for a while.

import { day, el, language, say, tell } from "./common.js";
import { ageOf, cardOf } from "./card.js";
import { closeDialog, dialog, READY_MS, unready } from "./dialog.js";

const REST_MS = 3000; // for so long nobody has touched anything: gaps may close
const KEYS = 9;
const ALERTS = 20;
const ALERT_MS = 10000;

const $ = (id) => document.getElementById(id);
const announced = new Set();
const answered = new Set(); // those whose answer the next state shows
const failed = new Map(); // by key: why the last tap came to nothing, and the row that was shown then
const sending = new Map(); // by key: the sentence of a tap that is not answered yet
export const cards = new Map(); // by key: the element, what it shows, and since when each of its buttons is there

export const listed = () => [...document.querySelectorAll(".card:not(.gone)")];

// What was answered is in this state.
export function settle() {
  for (const key of answered) sending.delete(key);
  answered.clear();
}

export function paint(state, now) {
  const grid = $("cards");
  if (!grid || !state) return;
  const there = new Set();
  for (const order of state.orders) {
    there.add(order.key);
    if (order.stop && dialog()?.dataset.key === order.key) closeDialog(); // what was private of it goes, too
    if (failed.has(order.key) && failed.get(order.key).row !== JSON.stringify(order.row)) failed.delete(order.key);
    put(grid, order, {
      role: state.role, customers: state.customers, timezone: state.timezone, now,
      tapped: sending.get(order.key), failure: failed.get(order.key)?.text,
    });
  }
  for (const [key, card] of cards) if (!there.has(key)) leave(key, card.element);
  number();
  $("empty").hidden = state.orders.length > 0;
}

function put(grid, order, about) {
  const { role, tapped, failure, timezone, now } = about;
  const shown = JSON.stringify([order, language(), role, tapped, failure, day(now, timezone)]);
  const known = cards.get(order.key);
  if (known?.shown === shown) return;
  const made = cardOf(order, about);
  if (known) {
    const hadFocus = known.element.contains(document.activeElement) ? document.activeElement.dataset.do ?? "" : null;
    known.element.replaceWith(made);
    if (hadFocus !== null) (made.querySelector(`[data-do="${hadFocus}"]`) ?? made).focus();
  } else {
    grid.append(made);
  }
  const card = { element: made, order, shown, born: bornOf(made, known) };
  cards.set(order.key, card);
  paintAge(card, now);
  announce(order);
}

// A button that a card did not have until now takes no touch yet: something else was there.
function bornOf(made, known) {
  const born = new Map();
  const now = performance.now();
  for (const one of made.querySelectorAll("button[data-do]")) {
    const since = known ? known.born.get(one.dataset.do) ?? now : -READY_MS;
    born.set(one.dataset.do, since);
    if (!one.disabled && now - since < READY_MS) unready([one], null, READY_MS - (now - since));
  }
  return born;
}

function leave(key, element) {
  element.style.height = `${element.getBoundingClientRect().height}px`; // an empty place of its size
  element.classList.add("gone");
  element.replaceChildren();
  element.removeAttribute("tabindex");
  cards.delete(key);
  for (const kind of ["new", "stop"]) announced.delete(kind + key);
  sending.delete(key);
  failed.delete(key);
  if (dialog()?.dataset.key === key) closeDialog();
}

export function closeGaps(restedMs) {
  const gone = restedMs < REST_MS ? [] : document.querySelectorAll(".card.gone");
  if (!gone.length) return;
  gone.forEach((one) => one.remove());
  number();
}

function number() {
  listed().forEach((card, place) => { card.querySelector(".slot").textContent = place < KEYS ? String(place + 1) : ""; });
}

export function paintAge({ element, order }, now) {
  const age = element.querySelector(".age");
  const { text, step } = ageOf(order, now);
  if (age.textContent !== text) age.textContent = text;
  if (element.dataset.step !== step) element.dataset.step = step;
}

function announce(order) {
  const kind = order.stop ? "stop" : order.sounds.includes("new") ? "new" : "";
  const mark = kind + order.key;
  if (!kind || announced.has(mark)) return;
  announced.add(mark);
  const alert = el("p", { role: "alert" }, say(kind === "stop" ? "announce_stop" : "announce", { number: order.number ?? "?" }));
  $("alerts").append(alert);
  while ($("alerts").children.length > ALERTS) $("alerts").firstChild.remove();
  setTimeout(() => alert.remove(), ALERT_MS);
}

// A tap: its card says so at once, until the state does. `repaint` shows what is known here alone.
export async function send(order, name, values, shown, repaint) {
  sending.set(order.key, shown);
  failed.delete(order.key);
  repaint();
  const { status, data } = await tell(name, values);
  if (status === 200) answered.add(order.key); // until that is seen, nobody taps it again
  else fail(order, data);
}

// It stays until the card is tapped again, or shows something else: whoever tapped may have turned away.
export function fail(order, data) {
  sending.delete(order.key);
  failed.set(order.key, { text: data.text ?? say("not_sent"), row: JSON.stringify(order.row) });
}

export const forget = () => cards.clear();
