// One order as a card. It decides nothing: the daemon has decided the order's lane, actions and sounds.

import { clock, day, el, has, money, say } from "./common.js";

const AGES_S = [30, 90, 180, 300];
const MANY_LINES = 12;
const NOTE_LINE = 30; // letters
const DAY_MS = 86400000;

export const numberOf = (order) => `#${order.number ?? "?"}`;

// `about`: role, customers, timezone, usual (minutes), isOneOfMany (restaurants), now (ms), tapped (the sentence of an
// unanswered tap), failure (why the last tap failed).
export function cardOf(order, about) {
  const isLine = order.lane === "way";
  const kind = [order.stop ? "stop" : order.status, isLine ? "line" : "", !isLine && linesOf(order) > MANY_LINES ? "wide" : ""];
  return el(
    "article", { class: `card ${kind.join(" ")}`, "data-key": order.key, tabindex: "0", "aria-labelledby": `n-${order.key}` },
    el(
      "header", {},
      el("span", { class: "slot", "aria-hidden": "true" }), el("h3", { id: `n-${order.key}` }, numberOf(order)), el("p", { class: "age" }),
      moreButton(order, about),
    ),
    isLine ? moneyOf(order) : contentsOf(order, about),
    el("div", { class: "buttons" }, buttonsOf(order, about)),
    verdictOf(order, about), // below the buttons, so that it moves none of them
  );
}

function contentsOf(order, about) {
  if (order.stop) return [whoseOf(order), itemsOf(order), el("p", { class: "facts" }, say("stopped_by"))];
  return [
    tagsOf(order, about),
    itemsOf(order),
    order.note ? el("p", { class: "note" }, order.note) : null,
    ...order.problems.map((code) => el("p", { class: "problem" }, problemOf(code))),
    moneyOf(order),
    doneOf(order),
  ];
}

const whoseOf = ({ restaurant }) => (restaurant ? el("p", { class: "tags" }, el("span", { class: "whose" }, restaurant)) : null);

// Its approximate height in lines: a card with many lines is wide.
const linesOf = (order) => order.items.reduce((sum, item) => sum + 1 + Math.ceil(item.options.length / 2) + (item.note ? 1 : 0), 0) + Math.floor((order.note ?? "").length / NOTE_LINE);

const isPickup = (order) => order.shipping === "pickup" || order.courier === "come_get";

// The scheduled time and the pickup, which must be readable from afar.
function tagsOf(order, { timezone, now, isOneOfMany }) {
  const tags = [
    order.sounds.includes("start") ? say("begin_now", { time: clock(order.start, timezone) }) : null,
    order.scheduled ? scheduled(order.scheduled, timezone, now) : null,
    isPickup(order) ? say("courier_come_get") : null,
  ].filter(Boolean).map((text) => el("span", { class: "tag" }, text));
  const restaurant = isOneOfMany && order.restaurant ? el("span", { class: "whose" }, order.restaurant) : null;
  return tags.length || restaurant ? el("p", { class: "tags" }, tags, restaurant) : null;
}

// A local time of the service, as people write it.
function scheduled(moment, timezone, now) {
  const [, date, time] = /^(\d+-\d+-\d+)[ T](\d+:\d+)/.exec(moment) ?? [];
  if (!time) return moment;
  if (date === day(now, timezone)) return say("today", { time });
  if (date === day(now + DAY_MS, timezone)) return say("tomorrow", { time });
  const [, month, number] = date.split("-");
  return `${number}.${month}. ${time}`;
}

export function itemsOf(order) {
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

export function courierOf(order) {
  if (isPickup(order) || !order.courier) return null; // a pickup has a tag; another courier may be unknown
  return say(order.courier === "restaurant" ? "courier_restaurant" : "courier_platform");
}

function problemOf(code) {
  const name = `problem_${code.split(":")[0]}`;
  return has(name) ? say(name) : say("problem", { code });
}

// Without the tip: the interface does not say whether the total includes it, and the amount at the door must be clear.
function moneyOf(order) {
  const amount = money(order.money === "ask" ? order.total : order.amount);
  const more = [order.payment, courierOf(order)].filter(Boolean).join(" · ");
  return el("p", { class: `money ${order.money}` }, say(`money_${order.money}`, { amount }), more ? [" ", el("small", {}, more)] : null);
}

const whatOf = (row) => say(`do_${row.action}`) + (row.minutes ? ` (${say("minutes", { minutes: row.minutes })})` : "");

// The last finished action, in small letters, because it needs no attention.
function doneOf({ row }) {
  if (row?.state !== "done" || row.asked_back) return null;
  return el("p", { class: "facts verdict done" }, say("verdict_done", { what: whatOf(row) }));
}

// A sentence only where it needs attention: a failed tap, an action that is delayed or has failed.
function verdictOf(order, { failure }) {
  if (failure) return el("p", { class: "verdict failed", role: "alert" }, failure);
  const row = order.row;
  if (!row || order.stop) return null;
  const isMissed = row.asked_back && !row.waits && row.state !== "withdrawn";
  if (row.waits ? !row.text : row.state === "done" && !isMissed) return null;
  const how = say(row.waits ? "waiting_retry" : `verdict_${row.state}`, { what: whatOf(row) });
  const why = isMissed ? say("not_taken_back") : row.text;
  return el("p", { class: `verdict ${row.waits ? "waits" : row.state}` }, [how, why].filter(Boolean).join(". "));
}

// ---- buttons: each kind has a fixed place ----------------------------------------------------------------------------------

function button(kind, place, text, more = {}) {
  return el("button", { type: "button", class: `big ${kind} at-${place}`, "data-do": kind, ...more }, text);
}

function moreButton(order, { role, customers }) {
  if (order.stop || (role !== "act" && !customers)) return null;
  return el("button", { type: "button", class: "more", "data-do": "more", "aria-label": `${say("more")} ${numberOf(order)}` }, "⋯");
}

function buttonsOf(order, about) {
  if (about.role !== "act") return [];
  if (order.stop) return [button("stop", "step", say("stop_touch"))];
  const cancel = order.actions.some((one) => one.action === "cancel") && order.lane !== "way" ? button("cancel", "no", say("do_cancel"), { disabled: Boolean(about.tapped) }) : null;
  return [stepOf(order, about), sideOf(order, about), cancel];
}

// The next action; while one is in progress, its progress.
function stepOf(order, { tapped, usual }) {
  const { row } = order;
  if (tapped) return button("busy", "step", tapped, { disabled: true });
  if (row?.back) return button("back", "step", backText(whatOf(row)));
  if (order.away) return button("back", "step", backText(say("handed")));
  if (row?.waits) return button("busy", "step", say("waiting", { what: whatOf(row) }), { disabled: true });
  const [next] = order.actions.filter((one) => one.action !== "cancel");
  if (next?.action === "accept") {
    return button("accept", "step", [say("do_accept"), " ", el("span", { class: "minutes" }, say("minutes", { minutes: usual }))], { "data-minutes": usual });
  }
  if (next) return button(next.action, "step", say(`do_${next.action}`));
  return order.handed && order.handed_next ? button("handed", "step", say("handed")) : null;
}

function sideOf(order, { tapped }) {
  const isAccept = order.actions.some((one) => one.action === "accept");
  if (isAccept) return button("minutes", "side", say("other_minutes"), { disabled: Boolean(tapped) });
  if (order.sounds.includes("new") || order.changed || order.sounds.includes("start") || order.sounds.includes("overdue")) return button("seen", "side", say("seen"));
  const isSecond = order.handed && order.handed_next && order.actions.some((one) => one.action !== "cancel");
  return isSecond && !order.away ? button("handed", "side", say("handed"), { disabled: Boolean(tapped) }) : null;
}

const backText = (what) => [el("span", { class: "what" }, what), " ", el("b", { class: "left" }, say("take_back"))];

// The seconds in which the action can still be undone.
export function countdown(element, order, now) {
  const left = element.querySelector(".back .left");
  const until = order.row?.held ?? order.away;
  if (!left || !until) return;
  const seconds = Math.ceil((Date.parse(until) - now) / 1000);
  const text = seconds > 0 ? say("take_back_in", { seconds }) : say("take_back");
  if (left.textContent !== text) left.textContent = text;
  if (seconds <= 0) left.closest("button").disabled = true;
}

// ---- the head: how long the customer waits, or the time that is left, and its colour --------------------------------------

export function ageOf(order, now) {
  if (order.stop) return { figure: "", word: say("stop"), step: "stop" };
  const waited = Math.max(0, Math.floor((now - Date.parse(order.received)) / 1000));
  switch (order.answer) {
    case "sending": return { figure: "", word: say("answer_sending", { what: say(`do_${order.row?.action ?? "accept"}`) }), step: "sent" };
    case "failed": return { figure: figure(waited), word: say("answer_failed"), step: "failed" };
    case "at_till": return { figure: figure(waited), word: say("answer_at_till"), step: "till" };
    case "needed": {
      const place = AGES_S.filter((limit) => waited >= limit).length;
      return { figure: figure(waited), word: say(`age_${place}`), step: `a${place}` };
    }
  }
  if (!order.due) return { figure: say("minutes", { minutes: Math.floor(waited / 60) }), word: say(`status_${order.status}`), step: "" };
  const minutes = Math.ceil((Date.parse(order.due) - now) / 60000);
  const hours = Math.floor(minutes / 60);
  if (hours > 1) return { figure: say("hours", { hours, minutes: minutes % 60 }), word: say("left"), step: "" };
  if (minutes > 0) return { figure: say("minutes", { minutes }), word: say("left"), step: "" };
  return { figure: say("minutes", { minutes: 1 - minutes }), word: say("age_3"), step: "late" };
}

function figure(seconds) {
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${String(seconds % 60).padStart(2, "0")}` : say("minutes", { minutes });
}
