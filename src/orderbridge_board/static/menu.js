// Foods with a button for sold out, restaurants with one for open and closed.

import { ask, el, locale, post, say } from "./common.js";
import { choose, chooseAndConfirm } from "./dialog.js";
import { rest } from "./steady.js";

const ANSWER_MS = 900; // as in grid.js
const MOVED_PX = 6;
let offered = new Map(); // by food or restaurant: its button's action and place when it was last painted
let sought = "";

// `isShown`: whether this page is still open when the answer arrives.
export async function paintMenu(main, acts, isShown) {
  const { status, data } = await ask("menu");
  if (status !== 200 || !isShown()) return;
  if (!main.querySelector("#foods")) {
    const search = el("input", { id: "search", type: "search", "aria-label": say("search"), placeholder: say("search"), autocomplete: "off" });
    search.value = sought;
    search.addEventListener("input", () => { sought = search.value; seek(main); });
    main.replaceChildren(
      el("section", { class: "list" }, el("h2", {}, say("restaurants")), el("div", { id: "shops" })),
      el("section", { class: "list" }, el("h2", {}, say("foods")), el("p", {}, say("foods_why")), search, el("div", { id: "foods" })),
    );
  }
  const before = offered;
  main.querySelector("#shops").replaceChildren(...inOrder(data.restaurants).map((one) => shop(one, acts)));
  main.querySelector("#foods").replaceChildren(...foods(data, acts), el("p", { id: "none", role: "status", hidden: true }, say("search_none")));
  seek(main);
  offered = new Map();
  for (const row of main.querySelectorAll(".row")) {
    const button = row.querySelector("button");
    if (!button) continue;
    const now = { what: button.dataset.do, y: row.getBoundingClientRect().y + scrollY };
    const known = before.get(row.dataset.subject);
    offered.set(row.dataset.subject, now);
    if (known && (known.what !== now.what || Math.abs(known.y - now.y) > MOVED_PX)) rest([button], "moved"); // something else was in this place
  }
}

const inOrder = (list) => {
  const { compare } = new Intl.Collator(locale(), { numeric: true });
  return list.toSorted?.((one, other) => compare(one.name ?? "", other.name ?? "")) ?? [...list].sort((one, other) => compare(one.name ?? "", other.name ?? ""));
};

const plain = (text) => text.toLocaleLowerCase(locale()).normalize("NFD").replace(/\p{M}/gu, "").replaceAll("ı", "i");

// Search anywhere in the name, ignoring case and accents.
function seek(main) {
  const wanted = plain(sought.trim());
  const rows = [...main.querySelectorAll("#foods .row")];
  for (const row of rows) row.hidden = !plain(row.dataset.name).includes(wanted);
  for (const heading of main.querySelectorAll(".whose, .category")) heading.hidden = Boolean(wanted);
  main.querySelector("#none").hidden = rows.some((row) => !row.hidden) || !wanted;
}

function shop(one, acts) {
  const known = { Open: "open", Closed: "closed" }[one.status] ?? "unknown";
  const what = one.status === "Closed" ? "open_restaurant" : "close_restaurant";
  return rowOf(one, one.name ?? one.id, until(one, known === "closed", say(known)), acts ? what : null, { restaurant_id: one.id });
}

// The foods by category. Several accounts have a heading each, because two kitchens may have the same food.
function foods(data, acts) {
  const accounts = [...new Set(data.foods.map((one) => one.account))];
  const isNamed = accounts.length > 1 || data.restaurants.length > 1;
  return accounts.flatMap((account) => {
    const names = data.restaurants.filter((one) => one.account === account).map((one) => one.name ?? one.id);
    const heading = isNamed ? [el("h3", { class: "whose" }, names.join(" · ") || account)] : [];
    const mine = data.foods.filter((one) => one.account === account);
    const categories = inOrder([...new Set(mine.map((one) => one.category))].map((name) => ({ name })));
    return [...heading, ...categories.flatMap(({ name }) => [
      ...(name ? [el(isNamed ? "h4" : "h3", { class: "category" }, name)] : []),
      ...inOrder(mine.filter((one) => one.category === name)).map((one) => food(one, acts)),
    ])];
  });
}

function food(one, acts) {
  const what = one.off ? "activate_food" : "deactivate_food";
  return rowOf(one, one.name ?? `#${one.food_id}`, until(one, one.off, say(one.off ? "off" : "on")), acts ? what : null, { food_id: one.food_id, account: one.account });
}

function rowOf(one, name, now, action, subject) {
  const row = one.row;
  const text = row && row.state !== "done"
    ? [say(row.waits ? "waiting" : `verdict_${row.state}`, { what: say(`do_${row.action}`) }), row.text].filter(Boolean).join(". ") : "";
  return el(
    "div", { class: "row", "data-subject": JSON.stringify(subject), "data-tries": one.tries, "data-name": name },
    el("span", { class: "name" }, name), el("span", { class: "now" }, now), el("span", { class: "verdict" }, text),
    action ? el("button", { type: "button", class: "big", "data-do": action, disabled: row?.waits }, say(`do_${action}`)) : null,
  );
}

const until = (one, isClosed, now) => isClosed && one.until ? say("until", { now, time: one.until }) : now;

// Without an end it stays closed until it is opened on the board, by the POS or on the platform.
const lengths = () => [
  { until: 30, text: say("minutes", { minutes: 30 }) }, { until: 60, text: say("one_hour") },
  { until: "today", text: say("rest_of_day") }, { until: null, text: say("no_end") },
];

// Handle a touch. A closure needs a duration; that of a restaurant needs a confirmation, because it stops all new orders.
export function toggle(row, action, repaint) {
  const values = { action, ...JSON.parse(row.dataset.subject), tries: Number(row.dataset.tries) };
  const name = row.dataset.name;
  const choices = lengths().map((one) => ({ text: one.text, values: { ...values, until: one.until } }));
  if (action === "deactivate_food") return choose("", say("off_how_long", { name }), choices, choices.length - 1, "closure");
  if (action !== "close_restaurant") return switchTo(values, repaint);
  const confirmed = choices.map((one) => ({ ...one, confirm: say("do_close", { name, time: one.text }) }));
  return chooseAndConfirm("", say("sure_close", { name }), confirmed, "time_first");
}

export async function switchTo(values, repaint) {
  const subject = JSON.stringify(Object.fromEntries(["restaurant_id", "food_id", "account"].filter((name) => name in values).map((name) => [name, values[name]])));
  const row = () => [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".row"))].find((one) => one.dataset.subject === subject);
  const set = (isOff, text) => {
    row()?.querySelectorAll("button").forEach((one) => { one.disabled = isOff; });
    if (row()) row().querySelector(".verdict").textContent = text;
  };
  set(true, say("waiting", { what: say(`do_${values.action}`) }));
  const late = setTimeout(() => set(false, say("no_answer")), ANSWER_MS);
  const { status, data } = await post("act", values);
  clearTimeout(late);
  if (status === 200) await repaint();
  else set(false, data.text ?? say("not_sent"));
}
