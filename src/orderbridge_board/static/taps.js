// What a touch or a key does.

import { ask, el, money, say } from "./common.js";
import { numberOf } from "./card.js";
import { choose, chooseAndConfirm, chosen, closeDialog, dialog, open } from "./dialog.js";
import { cards, fail, listed, send } from "./grid.js";
import { switchTo, toggle } from "./menu.js";

const USUAL = 3; // of the minutes
const STEPS = ["accept", "on_the_way", "complete", "stop", "seen"]; // what Enter does: never a cancel

// `page`: state() as it is, repaint() of what is known here, refresh() of everything, repaintMenu().
export function onTap(event, page) {
  const button = event.target.closest("button[data-do]");
  if (!button || button.disabled) return;
  const what = button.dataset.do;
  const at = button.closest(".card, .row");
  if (what === "close") return void closeDialog();
  if (what === "choose" || what === "confirm") return void decide(button, page);
  if (at?.classList.contains("row")) return void toggle(at, what, page.repaintMenu);
  const order = cards.get(at?.dataset.key)?.order;
  if (order) act(order, what, page);
}

async function tapped(order, name, values, shown, page) {
  await send(order, name, values, shown, page.repaint);
  await page.refresh();
}

function act(order, what, page) {
  const { minutes, reasons } = page.state();
  switch (what) {
    case "accept": return askMinutes(order, minutes);
    case "cancel": return askReason(order, reasons);
    case "customer": return showCustomer(order, page);
    case "back": return tapped(order, "back", { id: order.row.id }, say("take_back"), page);
    case "handed": return tapped(order, "seen", { subjects: [order.handed] }, say("handed"), page);
    case "stop": return see(order, [`cancelled:${order.key}`], page);
    case "seen": return see(order, ["start", "overdue"].filter((one) => order.sounds.includes(one)).map((one) => `${one}:${order.key}`), page);
    default: return tapped(order, "act", { action: what, ...named(order, what) }, say("waiting", { what: say(`do_${what}`) }), page);
  }
}

const see = (order, subjects, page) => tapped(order, "seen", { subjects, payment_key: order.key, revision: order.revision }, say("seen"), page);

function askMinutes(order, all) {
  const choices = all.map((minutes) => ({ text: say("minutes", { minutes }), values: { action: "accept", preparing_time: minutes, ...named(order, "accept") } }));
  choose(order.key, `${numberOf(order)}: ${say("how_long")}`, choices, USUAL, "accept");
}

function askReason(order, reasons) {
  const title = `${numberOf(order)}: ${say("why_cancel")}`;
  if (!reasons.length) return open(order.key, title, el("p", { class: "told" }, say("no_reasons")), "never_mind");
  const choices = reasons.map(({ id, reason }) => ({
    text: reason,
    values: { action: "cancel", reason_id: id, ...named(order, "cancel") },
    confirm: say("cancel_for", { number: numberOf(order), reason }),
  }));
  return chooseAndConfirm(order.key, title, choices, "reason_first");
}

// What the person who taps has seen: a row that came to its end meanwhile makes the same tap no second one.
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

async function showCustomer(order, page) {
  const { status, data } = await ask("customer", { key: order.key });
  if (status !== 200) {
    fail(order, data);
    page.repaint();
    return;
  }
  const place = [data.address, data.building_no, data.apartment_no, data.neighborhood_name, data.district_name, data.city_name].filter(Boolean).join(", ");
  const tip = Number(order.tip) > 0 ? say("tip", { amount: money(order.tip) }) : "";
  const lines = [data.customer_name, data.customer_phone, place, data.address_description, tip].filter(Boolean);
  open(order.key, `${numberOf(order)}: ${say("customer")}`, el("div", { class: "told" }, lines.map((line) => el("p", {}, line))), "hide");
}

export function onKey(event) {
  if (event.repeat && event.key === "Enter") return void event.preventDefault(); // a key that is held down is one tap
  if (event.target.closest("input, dialog")) return;
  const place = Number(event.key);
  if (place >= 1 && place <= 9) listed()[place - 1]?.focus();
  if (event.key !== "Enter" || !event.target.classList.contains("card")) return;
  event.preventDefault(); // else it chooses in the window that this opens, too
  const usual = STEPS.map((one) => event.target.querySelector(`[data-do=${one}]`)).find(Boolean);
  if (usual && !document.body.classList.contains("resting")) usual.click();
}
