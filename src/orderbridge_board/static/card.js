// One order as a card. It decides nothing: how an order stands, the daemon has said.

import { clock, day, el, has, money, say } from "./common.js";

const AGES_S = [30, 90, 180, 300];
const MANY_LINES = 12;
const NOTE_LINE = 30; // letters
const DAY_MS = 86400000;

export const numberOf = (order) => `#${order.number ?? "?"}`;

// `about`: role, customers, timezone, now (ms), tapped (the sentence of a tap that waits), failure (why one came to nothing).
export function cardOf(order, about) {
  const kind = `${order.stop ? "stop" : order.status} ${linesOf(order) > MANY_LINES ? "wide" : ""}`;
  return el(
    "article", { class: `card ${kind}`, "data-key": order.key, tabindex: "0", "aria-labelledby": `n-${order.key}` },
    el(
      "header", {},
      el("span", { class: "slot", "aria-hidden": "true" }), el("h2", { id: `n-${order.key}` }, numberOf(order)),
      order.stop ? null : waysOf(order, about), el("p", { class: "age" }),
    ),
    order.stop ? stopped(order) : going(order),
    verdictOf(order, about),
    el("div", { class: "buttons" }, order.stop ? stopButton(about) : buttonsOf(order, about)),
  );
}

// What to stop, and who has cancelled, as far as the tables know: one that was asked for here shows no card.
const stopped = (order) => [el("p", { class: "halt" }, say("stop")), itemsOf(order), el("p", { class: "facts" }, say("stopped_by"))];

function going(order) {
  return [
    el("p", { class: "facts" }, [order.restaurant, courier(order)].filter(Boolean).join(" · ")),
    itemsOf(order),
    order.note ? el("p", { class: "note" }, order.note) : null,
    ...order.problems.map((code) => el("p", { class: "problem" }, problemOf(code))),
    moneyOf(order),
  ];
}

// About how high it is: a card of many lines is made wide.
const linesOf = (order) => order.items.reduce((sum, item) => sum + 1 + item.options.length + (item.note ? 1 : 0), 0) + Math.floor((order.note ?? "").length / NOTE_LINE);

const isPickup = (order) => order.shipping === "pickup" || order.courier === "come_get";

// For when, and that it is fetched: what is read from afar, beside the number.
function waysOf(order, { timezone, now }) {
  const begin = order.sounds.includes("start") ? say("begin_now", { time: clock(order.start, timezone) }) : null;
  const ways = [begin, order.scheduled ? scheduled(order.scheduled, timezone, now) : null, isPickup(order) ? say("courier_come_get") : null];
  return ways.filter(Boolean).map((text) => el("span", { class: "way" }, text));
}

// A local time of the service's, as it is said here.
function scheduled(moment, timezone, now) {
  const [, date, time] = /^(\d+-\d+-\d+)[ T](\d+:\d+)/.exec(moment) ?? [];
  if (!time) return moment;
  if (date === day(now, timezone)) return say("today", { time });
  if (date === day(now + DAY_MS, timezone)) return say("tomorrow", { time });
  const [, month, number] = date.split("-");
  return `${number}.${month}. ${time}`;
}

function itemsOf(order) {
  return el("ul", { class: "items" }, order.items.map(itemOf));
}

function itemOf(item) {
  const options = item.options.map((one) => el("li", {}, [one.group, one.name].filter(Boolean).join(": ")));
  return el(
    "li", {},
    el("span", { class: "what" }, `${item.quantity ?? "?"} × ${item.name ?? "?"}`),
    options.length ? el("ul", { class: "options" }, options) : null,
    item.note ? el("strong", { class: "itemnote" }, item.note) : null,
  );
}

function courier(order) {
  if (isPickup(order) || !order.courier) return null; // the one stands above, and of the other nobody has said who
  return say(order.courier === "restaurant" ? "courier_restaurant" : "courier_platform");
}

function problemOf(code) {
  const name = `problem_${code.split(":")[0]}`;
  return has(name) ? say(name) : say("problem", { code });
}

// The tip is not here: whether the total has it, the interface does not say, and nobody must wonder at a door.
function moneyOf(order) {
  const amount = money(order.money === "ask" ? order.total : order.amount);
  return el("p", { class: `money ${order.money}` }, say(`money_${order.money}`, { amount }), order.payment ? [" ", el("small", {}, order.payment)] : null);
}

function verdictOf(order, { tapped, failure }) {
  if (tapped) return el("p", { class: "verdict waits" }, tapped);
  if (failure) return el("p", { class: "verdict failed", role: "alert" }, failure);
  const row = order.row;
  if (order.stop) return null;
  if (!row) return el("p", { class: "verdict" }); // its place is kept: a tap on one card moves no other
  const what = say(`do_${row.action}`) + (row.minutes ? ` (${say("minutes", { minutes: row.minutes })})` : "");
  const how = row.waits ? say(row.text ? "waiting_retry" : "waiting", { what }) : say(`verdict_${row.state}`, { what });
  const isMissed = row.asked_back && !row.waits && row.state !== "withdrawn";
  const why = isMissed ? say("not_taken_back") : row.state === "done" ? "" : row.text;
  return el("p", { class: `verdict ${row.waits ? "waits" : row.state}` }, [how, why].filter(Boolean).join(". "));
}

// Each kind has its own place, whether it is there or not: nothing comes under a finger that meant something else.
const PLACES = { accept: "step", on_the_way: "step", complete: "step", cancel: "no", back: "more", handed: "more", seen: "more", stop: "more", customer: "who" };

function button(kind, text, disabled = false) {
  const isBig = kind !== "customer";
  return el("button", { type: "button", class: `${isBig ? "big" : ""} ${kind} at-${PLACES[kind]}`, "data-do": kind, disabled }, text);
}

const stopButton = ({ role }) => (role === "act" ? [button("stop", say("stop_touch"))] : []);

function buttonsOf(order, { role, customers, tapped }) {
  const isTapped = Boolean(tapped);
  const made = [];
  if (role === "act") {
    for (const one of order.actions) made.push(button(one.action, say(`do_${one.action}`), isTapped));
    const isNew = order.sounds.includes("new") && !order.actions.some((one) => one.action === "accept");
    if (order.row?.back) made.push(button("back", say("take_back"), isTapped));
    else if (isNew || order.changed || order.sounds.includes("start") || order.sounds.includes("overdue")) made.push(button("seen", say("seen")));
    else if (order.handed) made.push(button("handed", say("handed"), isTapped));
  }
  if (customers) made.push(button("customer", say("customer")));
  return made;
}

// What the head says, and in which colour: how long somebody waits, or how long there is still.
export function ageOf(order, now) {
  if (order.stop) return { text: "", step: "stop" };
  const waited = Math.max(0, Math.floor((now - Date.parse(order.received)) / 1000));
  switch (order.answer) {
    case "sending": return { text: say("answer_sending", { what: say(`do_${order.row?.action ?? "accept"}`) }), step: "sent" };
    case "failed": return { text: `${figure(waited)} ${say("answer_failed")}`, step: "failed" };
    case "at_till": return { text: `${figure(waited)} ${say("answer_at_till")}`, step: "till" };
    case "needed": {
      const place = AGES_S.filter((limit) => waited >= limit).length;
      return { text: `${figure(waited)} ${say(`age_${place}`)}`, step: `a${place}` };
    }
  }
  if (!order.due) return { text: say(`status_${order.status}`), step: "" };
  const minutes = Math.ceil((Date.parse(order.due) - now) / 60000);
  const hours = Math.floor(minutes / 60);
  if (hours > 1) return { text: say("due_in_hours", { hours, minutes: minutes % 60 }), step: "" };
  return minutes > 0 ? { text: say("due_in", { minutes }), step: "" } : { text: say("overdue", { minutes: 1 - minutes }), step: "a3" };
}

function figure(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${String(seconds % 60).padStart(2, "0")}` : say("minutes", { minutes });
}
