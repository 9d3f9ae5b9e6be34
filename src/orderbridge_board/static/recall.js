// The orders that were finished or handed over in the last hour, with a button to bring them back.

import { ask, clock, el, money, post, say } from "./common.js";
import { itemsOf, numberOf } from "./card.js";

export async function paintRecall(main, { role, timezone }, isShown) {
  const { status, data } = await ask("recall");
  if (status !== 200 || !isShown()) return;
  const rows = data.orders.map((one) => el(
    "div", { class: "row", "data-subject": one.subject },
    el("div", { class: "name" }, el("b", {}, numberOf(one)), ` ${say(`how_${one.how}`)}, ${clock(one.at, timezone)}`, el("p", { class: "facts" }, `${money(one.total)} ₺`)),
    el("div", { class: "contents" }, itemsOf(one), one.note ? el("p", { class: "note" }, one.note) : null),
    el("span", { class: "verdict", role: "status" }),
    one.subject && role === "act" ? el("button", { type: "button", class: "big", "data-do": "bring_back" }, say("bring_back")) : null,
  ));
  main.replaceChildren(el(
    "section", { class: "list" }, el("h2", {}, say("recall")), el("p", {}, say("recall_why")),
    rows.length ? rows : el("p", { id: "none" }, say("recall_empty")),
  ));
}

export async function bringBack(row, page) {
  const button = row.querySelector("button");
  button.disabled = true;
  const { status, data } = await post("back", { subject: row.dataset.subject });
  if (status === 200) return page.repaintRecall();
  button.disabled = false;
  row.querySelector(".verdict").textContent = data.text ?? say("not_sent");
}
