// Handles touches and keys.

import { ask, el, money, say } from "./common.js";
import { courierOf, itemsOf, numberOf } from "./card.js";
import { choose, chooseAndConfirm, chosen, closeDialog, dialog, open } from "./dialog.js";
import { cards, isSending, numbered, send } from "./grid.js";
import { doOfHead } from "./head.js";
import { switchTo, toggle } from "./menu.js";
import { bringBack } from "./recall.js";
import { counts, isReadyForKeys } from "./steady.js";

// `page`: state(), repaint() without a request, refresh() with one, repaintMenu(), repaintRecall().
export function onTap(event, page) {
  const button = event.target.closest("button[data-do]");
  if (!button || !counts(event, button)) return;
  const what = button.dataset.do;
  const at = button.closest(".card, .row");
  if (what === "close") return void closeDialog();
  if (what === "choose" || what === "confirm") return void decide(button, page);
  if (what === "bring_back") return void bringBack(at, page);
  if (doOfHead(what, button)) return;
  if (at?.classList.contains("row")) return void toggle(at, what, page.repaintMenu);
  const order = cards.get(at?.dataset.key ?? dialog()?.dataset.key)?.order;
  if (!order) return;
  if (!at) closeDialog();
  act(order, what, page, button);
}

async function tapped(order, name, values, shown, page) {
  if (isSending(order.key)) return; // one tap at a time
  await send(order, name, values, shown, page.repaint);
  await page.refresh();
}

function act(order, what, page, button) {
  const { minutes, reasons } = page.state();
  switch (what) {
    case "accept": return accept(order, Number(button.dataset.minutes), page);
    case "minutes": return askMinutes(order, minutes, page.state().usual);
    case "cancel": return askReason(order, reasons);
    case "more": return showMore(order, page);
    case "back": return tapped(order, "back", order.row?.back ? { id: order.row.id } : { subject: order.handed }, say("take_back"), page);
    case "handed": return tapped(order, "seen", { subjects: [order.handed] }, say("handed"), page);
    case "stop": return see(order, [`cancelled:${order.key}`], page);
    case "seen": return see(order, ["start", "overdue"].filter((one) => order.sounds.includes(one)).map((one) => `${one}:${order.key}`), page);
    default: return tapped(order, "act", { action: what, ...named(order, what) }, say("waiting", { what: say(`do_${what}`) }), page);
  }
}

const see = (order, subjects, page) => tapped(order, "seen", { subjects, payment_key: order.key, revision: order.revision }, say("seen"), page);

const acceptIn = (order, minutes) => ({ action: "accept", preparing_time: minutes, ...named(order, "accept") });

function accept(order, minutes, page) {
  const what = `${say("do_accept")} (${say("minutes", { minutes })})`;
  return tapped(order, "act", acceptIn(order, minutes), say("waiting", { what }), page);
}

function askMinutes(order, all, usual) {
  const choices = all.map((minutes) => ({ text: say("minutes", { minutes }), values: acceptIn(order, minutes) }));
  choose(order.key, `${numberOf(order)}: ${say("how_long")}`, choices, Math.max(0, all.indexOf(usual)), "accept");
}

function askReason(order, reasons) {
  const title = `${numberOf(order)}: ${say("why_cancel")}`;
  if (!reasons.length) return open(order.key, title, el("p", { class: "notice" }, say("no_reasons")), "never_mind");
  const choices = reasons.map(({ id, reason }) => ({
    text: reason,
    values: { action: "cancel", reason_id: id, ...named(order, "cancel") },
    confirm: say("cancel_for", { number: numberOf(order), reason }),
  }));
  return chooseAndConfirm(order.key, title, choices, "reason_first");
}

// What the person has seen, so that a repeated tap makes no second row after the first one ended.
const named = (order, action) => ({
  payment_key: order.key,
  revision: order.revision,
  tries: order.actions.find((one) => one.action === action)?.tries ?? 0,
});

function decide(button, page) {
  const values = button.dataset.do === "choose" ? chosen(button) : JSON.parse(button.dataset.values);
  if (!values) return;
  const order = cards.get(dialog().dataset.key)?.order;
  closeDialog();
  if (!values.payment_key) switchTo(values, page.repaintMenu);
  else if (order) tapped(order, "act", values, say("waiting", { what: say(`do_${values.action}`) }), page);
}

// The whole order: customer, address, contents, and rare actions.
async function showMore(order, page) {
  const { role, customers } = page.state();
  const who = el("div", { class: "notice", "aria-live": "polite" }, customers ? say("asking") : say("not_encrypted"));
  const tip = Number(order.tip) > 0 ? el("p", {}, say("tip", { amount: money(order.tip) })) : null;
  const facts = [order.restaurant, courierOf(order)].filter(Boolean).join(" · ");
  const seldom = role !== "act" ? [] : [
    order.handed && !order.away ? el("button", { type: "button", class: "big", "data-do": "handed" }, say("handed_away")) : null,
    order.lane === "way" && order.actions.some((one) => one.action === "cancel") ? el("button", { type: "button", class: "big", "data-do": "cancel" }, say("do_cancel")) : null,
  ].filter(Boolean);
  open(order.key, `${numberOf(order)}: ${say("more")}`, el("div", { class: "all" }, who, tip, el("p", { class: "facts" }, facts), itemsOf(order), order.note ? el("p", { class: "note" }, order.note) : null), "hide", seldom);
  if (!customers) return;
  const { status, data } = await ask("customer", { key: order.key });
  const place = [data.address, data.building_no, data.apartment_no, data.neighborhood_name, data.district_name, data.city_name].filter(Boolean).join(", ");
  const lines = status === 200 ? [data.customer_name, data.customer_phone, place, data.address_description].filter(Boolean) : [data.text ?? say("not_shown")];
  who.replaceChildren(...lines.map((line) => el("p", {}, line)));
}

export function onKey(event) {
  if (event.repeat && event.key === "Enter") return void event.preventDefault(); // a held key is one tap
  if (event.target.closest("input, dialog")) return;
  if (/^[1-9]$/.test(event.key)) numbered(Number(event.key))?.focus();
  if (!event.target.classList.contains("card")) return;
  const wanted = { Enter: ".at-step:not(.back)", Backspace: ".back" }[event.key];
  if (!wanted) return;
  event.preventDefault(); // otherwise the key would also press a button of the opened window
  const button = event.target.querySelector(`.buttons ${wanted}`) ?? (event.key === "Enter" ? event.target.querySelector(".seen") : null);
  if (button && isReadyForKeys(button) && !document.body.classList.contains("resting")) button.click();
}
