// The bar above every page: buttons that lead to waiting orders, and the worst problem.

import { clock, el, say } from "./common.js";
import { numberOf } from "./card.js";
import { open } from "./dialog.js";

const $ = (id) => document.getElementById(id);
const UNHEARD = "board_unheard";
let calls = ""; // the buttons that are shown
let message = "";
let listed = []; // the problems that a touch opens

// `now`: state, view, problems, failure, failedTaps, isLost, isCut, isAudible.
export function paintBar(now) {
  const made = now.state && now.view !== "arm" ? callsOf(now.state) : [];
  if (calls !== JSON.stringify(made)) {
    calls = JSON.stringify(made);
    $("calls").replaceChildren(...made.map((one) => el(
      "button", { type: "button", class: `call ${one.kind}`, "data-call": one.key }, el("b", {}, one.what), el("span", {}, one.which),
    )));
  }
  const { kind, what, why, more } = messageOf(now);
  if (message !== [kind, what, why, more].join("|")) {
    message = [kind, what, why, more].join("|");
    $("bar").className = kind;
    $("bar").replaceChildren(
      el("span", { class: "text" }, what, why ? el("small", {}, ` ${why}`) : null), more ? el("b", { class: "more" }, `+${more}`) : "",
    );
  }
  $("bar").hidden = !what;
  $("mute").hidden = !loud(now).length || now.state?.role !== "act";
}

// The waiting orders by kind (cancelled but not seen, unanswered, overdue, to begin), and the closed restaurants.
function callsOf(state) {
  const orders = (isOne) => state.orders.filter(isOne);
  const found = [
    ["stop", orders((one) => one.stop), say("stop")],
    ["fresh", orders((one) => one.sounds.includes("new") || ["needed", "failed", "at_till"].includes(one.answer)), say("call_new")],
    ["late", orders((one) => one.sounds.includes("overdue")), say("call_overdue")],
    ["begin", orders((one) => one.sounds.includes("start")), say("call_begin")],
  ].filter(([, some]) => some.length).map(([kind, some, what]) => ({
    kind, key: some[0].key, what: some.length > 1 || kind === "fresh" ? `${what} ${some.length}` : what, which: some.map((one) => (kind === "stop" && one.restaurant ? `${numberOf(one)} ${one.restaurant}` : numberOf(one))).join(" "),
  }));
  if (state.closed.length) found.push({ kind: "shut", what: say("call_closed"), key: "", which: counted(state.closed) });
  return found;
}

const counted = (names) => names[0] + (names.length > 1 ? ` +${names.length - 1}` : "");

// Whether the cards are outdated or the sound is off; otherwise the worst problem, and the number of others.
function messageOf({ state, view, problems, failure, failedTaps, isLost, isCut, isAudible }) {
  listed = [];
  if (isLost) return { kind: "red", what: failure || say("link_daemon_tablet"), why: state ? say("bar_stale", { time: clock(state.now, state.timezone) }) : "" };
  if (failedTaps.length) return { kind: "red", what: say("failed_taps", { count: failedTaps.length, orders: failedTaps.join(", ") }) };
  if (!isAudible && view !== "arm") return { kind: "red quiet", what: say("bar_quiet") };
  if (isCut) return { kind: "yellow", what: say("bar_cut") };
  const found = problems.filter((one) => one.code !== UNHEARD || !(isAudible || view === "arm")).sort((one, other) => weight(other) - weight(one));
  if (failure && !found.some((one) => one.link)) return { kind: "red", what: failure };
  listed = found;
  const [worst] = found;
  if (!worst) return { kind: "", what: "" };
  const sentences = [worst.link ? say(`link_${worst.link}`) : "", worst.cause, worst.remedy].filter(Boolean);
  return { kind: worst.severity === "severe" ? "red" : "yellow", what: sentences[0], why: sentences.slice(1).join(" "), more: found.length - 1 };
}

const weight = (one) => [one.sounds, one.severity === "severe", one.link && one.link !== "pos", one.link].reduce((sum, is) => 2 * sum + Number(Boolean(is)), 0);

export const loud = ({ problems }) => problems.filter((one) => one.sounds).map((one) => one.silence);

// All problems, each with its remedy.
export function showProblems() {
  if (!listed.length) return;
  open("", say("problems"), el("div", { class: "wrong" }, listed.map((one) => el(
    "section", { class: one.severity },
    el("h3", {}, one.link ? say(`link_${one.link}`) : one.cause), el("p", {}, one.link ? `${one.cause} ${one.remedy}` : one.remedy),
  ))), "hide");
}
