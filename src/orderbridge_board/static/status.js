// The technician's page: problems, polls of the last 24 hours, and today's orders.

import { ask, clock, el, language, learn, money, pairing, say, speak, svg } from "./common.js";

const AGAIN_MS = 5000;
const SLOT_MS = 600000;
const DAY_MS = 86400000;
const FIGURES = ["orders", "completed", "unfinished", "cancelled", "never_taken_over"];
const AMOUNTS = ["cash", "prepaid", "tips"];
const IF_ANY = ["payment_unknown", "cash_unfinished", "prepaid_unfinished", "discount", "without_amount"];
const $ = (id) => document.getElementById(id);

async function refresh() {
  const { status, data } = await ask("technician");
  if (status === 401) {
    if (!document.querySelector(".pairing")) $("main").replaceChildren(pairing(refresh));
    return;
  }
  if (status === 200) paint(data);
  else light("red", say(status === 0 ? "link_daemon_tablet" : "no_database"));
}

function light(colour, text) {
  $("light").className = colour;
  $("light").textContent = `${say(`light_${colour}`)}: ${text}`;
}

function paint(data) {
  const worst = data.problems.some((one) => one.severity === "severe") ? "red" : data.problems.length ? "yellow" : "green";
  const shut = data.closed.length ? `${say("call_closed")}: ${data.closed.join(" · ")}` : "";
  light(worst, data.problems.length ? data.problems[0].cause : shut || say("all_well"));
  $("main").replaceChildren(problems(data, shut), tablets(data), accounts(data), rows(data), day(data));
}

const when = (moment, data) => (moment ? clock(moment, data.timezone, true) : "–");

function problems(data, shut) {
  const listed = data.problems.map((one) => el(
    "div", { class: `problem ${one.severity}` },
    el("h3", {}, [one.who, one.cause].filter(Boolean).join(": ") + (one.count > 1 ? ` (${one.count})` : "")),
    el("p", {}, one.remedy),
    one.since ? el("p", {}, say("since", { time: when(one.since, data) })) : null,
  ));
  const closed = shut ? el("p", { class: "problem" }, shut) : null;
  return el("section", {}, el("h2", {}, say("problems")), closed, listed.length || shut ? listed : el("p", {}, say("all_well")));
}

function tablets(data) {
  const heads = ["tablets", "last_seen", "sound"].map((name) => el("th", { scope: "col" }, say(name)));
  const lines = data.tablets.map((one) => el(
    "tr", {},
    el("th", { scope: "row" }, one.name + (one.role === "act" ? "" : ` (${say("looks_only")})`)),
    el("td", {}, when(one.seen_utc, data)), el("td", {}, say(one.audible ? "sound_on" : "sound_off")),
  ));
  return el("section", { class: "tablets" }, el("h2", {}, say("tablets")), el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, lines)));
}

function accounts(data) {
  const heads = ["account", "state", "good_poll", "token"].map((name) => el("th", { scope: "col" }, say(name)));
  const lines = data.accounts.map((one) => el(
    "tr", {},
    el("th", { scope: "row" }, one.name), el("td", {}, say(`status_${one.state}`)),
    el("td", {}, when(one.last_poll_ok_utc, data)), el("td", {}, when(one.token_expires_utc, data)),
  ));
  const more = data.accounts_all > data.accounts.length ? el("p", {}, say("accounts_more", { count: data.accounts_all, shown: data.accounts.length })) : null;
  return el(
    "section", {}, el("h2", {}, say("accounts")), more,
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": say("accounts") }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, lines))),
    el("p", {}, say("strip")), data.accounts.map((one) => strip(one, data)),
  );
}

// The last 24 hours of one account, with a bar for every ten minutes.
function strip(account, data) {
  const end = Date.parse(data.now);
  const begin = Math.floor((end - DAY_MS) / SLOT_MS) * SLOT_MS;
  const bars = data.slots.filter((slot) => slot.account === account.name).map((slot) => {
    const place = Math.round((Date.parse(slot.slot_utc) - begin) / SLOT_MS);
    const kind = slot.failed ? "bad" : "good";
    const part = slot.polls ? slot.failed / slot.polls : 0;
    const time = clock(slot.slot_utc, data.timezone);
    return svg(
      "g", {},
      svg("title", {}, say("strip_slot", { time, polls: slot.polls, failed: slot.failed, logins: slot.logins })),
      svg("rect", { class: "good", x: place * 5, y: 0, width: 4, height: 30 }),
      kind === "bad" ? svg("rect", { class: "bad", x: place * 5, y: 0, width: 4, height: Math.max(6, 30 * part) }) : null,
      slot.logins ? svg("rect", { class: "login", x: place * 5, y: 32, width: 4, height: 6 }) : null,
    );
  });
  const mine = data.orders.filter((slot) => slot.account === account.name);
  const most = Math.max(1, ...data.orders.map((slot) => slot.count));
  const came = mine.map(({ slot_utc: slot, count }) => {
    const height = (16 * count) / most;
    const title = svg("title", {}, say("hour", { time: clock(slot, data.timezone), count }));
    return svg("g", {}, title, svg("rect", { class: "order", x: Math.round((Date.parse(slot) - begin) / SLOT_MS) * 5, y: 58 - height, width: 4, height }));
  });
  return el(
    "figure", { class: "strip" }, el("figcaption", {}, account.name),
    svg("svg", { viewBox: "0 0 725 60", role: "img", "aria-label": `${account.name}: ${say("strip")}` }, bars, came),
  );
}

function rows(data) {
  const box = data.outbox;
  return el(
    "section", {}, el("h2", {}, say("outbox")),
    el("p", {}, say("waiting_rows", { waiting: box.waiting, sending: box.sending, failed: box.failed_last_day })),
    el("p", {}, say("in_quarantine", { count: data.quarantined })),
    data.mode === "till" ? null : el("p", {}, data.pos_seen ? say("pos_seen", { time: when(data.pos_seen, data) }) : say("pos_never")),
  );
}

function day(data) {
  const { figures, hours, begin } = data.day;
  const shown = [
    ...FIGURES.map((name) => [name, figures[name]]),
    ...[...AMOUNTS, ...IF_ANY.filter((name) => Number(figures[name]) > 0)].map((name) => [name, typeof figures[name] === "number" ? figures[name] : money(figures[name])]),
  ].map(([name, value]) => el("div", { class: "figure" }, el("dt", {}, say(`day_${name}`)), el("dd", {}, String(value))));
  const most = Math.max(1, ...hours);
  const bars = hours.map((count, place) => {
    const height = (60 * count) / most;
    const time = clock(Date.parse(begin) + place * 3600000, data.timezone);
    return svg(
      "g", {},
      svg("title", {}, say("hour", { time, count })),
      svg("rect", { class: "hour", x: place * 20, y: 60 - height, width: 16, height }),
      place % 4 ? null : svg("text", { x: place * 20, y: 73 }, time.slice(0, 2)),
    );
  });
  return el(
    "section", {}, el("h2", {}, say("day", { time: clock(begin, data.timezone) })), el("dl", {}, shown),
    el("figure", {}, el("figcaption", {}, say("hours")), svg("svg", { viewBox: "0 0 500 76", role: "img", "aria-label": say("hours") }, bars)),
  );
}

function name() {
  $("title").textContent = say("status_title");
  document.title = say("status_title");
  $("language").textContent = say("other_language");
  $("back").textContent = say("back_to_board");
}

await learn();
$("back").addEventListener("click", () => location.assign("/"));
$("language").addEventListener("click", () => { speak(language() === "tr" ? "en" : "tr"); name(); refresh(); });
name();
await refresh();
setInterval(refresh, AGAIN_MS);
