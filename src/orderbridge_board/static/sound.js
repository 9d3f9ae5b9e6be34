// Five generated sounds, which repeat as long as there is a reason for them.

const REPEAT_MS = 2500;
// Each note: frequency in Hz, start and duration in seconds, and wave shape.
const NOTES = {
  cancelled: [[196, 0, 0.18, "square"], [185, 0.22, 0.18, "square"], [196, 0.44, 0.18, "square"], [185, 0.66, 0.22, "square"]],
  new: [[880, 0, 0.16, "triangle"], [1175, 0.18, 0.16, "triangle"], [880, 0.42, 0.16, "triangle"], [1175, 0.6, 0.28, "triangle"]],
  line: [[440, 0, 0.45, "sawtooth"], [330, 0.47, 0.45, "sawtooth"]],
  start: [[523, 0, 0.2, "triangle"], [784, 0.24, 0.4, "triangle"]],
  overdue: [[660, 0, 0.1, "sine"], [660, 0.16, 0.1, "sine"], [660, 0.32, 0.1, "sine"]],
};
export const LOUDEST_FIRST = ["cancelled", "new", "line", "start", "overdue"];

let context = null;
let master = null;
let analyser = null;
let active = [];
let next = 0;
let playing = [];
let timer = null;

function make() {
  const Context = globalThis.AudioContext ?? globalThis.webkitAudioContext;
  if (context || !Context) return;
  context = new Context();
  master = context.createGain();
  analyser = context.createAnalyser();
  master.connect(analyser);
  analyser.connect(context.destination);
}

// Switch the sound on. Most browsers require a touch first. Returns whether it is on.
export async function arm() {
  make();
  if (!context) return false;
  if (context.state !== "running") {
    const within = new Promise((resolve) => setTimeout(resolve, 400));
    await Promise.race([context.resume().catch(() => {}), within]);
  }
  return isOn();
}

export const isOn = () => context !== null && context.state === "running";

// Play these sounds in turn, the most urgent first; an empty list stops at once.
export function sound(names) {
  const wanted = LOUDEST_FIRST.filter((name) => names.includes(name));
  if (wanted.join() === active.join()) return;
  active = wanted;
  hush();
  next = 0;
  clearTimeout(timer);
  if (active.length) play();
}

export const sounding = () => active;

function hush() {
  for (const one of playing) one.stop();
  playing = [];
}

function play() {
  timer = setTimeout(play, REPEAT_MS);
  if (!isOn()) return;
  const name = active[next % active.length];
  next += 1;
  ring(name);
}

// Play a sound once, beside any other.
export function ring(name = "new") {
  for (const [hz, from, seconds, wave] of NOTES[name]) {
    const note = context.createOscillator();
    const volume = context.createGain();
    const begin = context.currentTime + from;
    note.type = wave;
    note.frequency.value = hz;
    volume.gain.setValueAtTime(0, begin);
    volume.gain.linearRampToValueAtTime(0.9, begin + 0.02);
    volume.gain.setValueAtTime(0.9, begin + seconds - 0.03);
    volume.gain.linearRampToValueAtTime(0, begin + seconds);
    note.connect(volume).connect(master);
    note.start(begin);
    note.stop(begin + seconds);
    note.onended = () => { volume.disconnect(); playing = playing.filter((one) => one !== note); };
    playing.push(note);
  }
}

// The present volume, for tests; 0 is silence.
export function level() {
  if (!analyser) return 0;
  const wave = new Float32Array(analyser.fftSize);
  analyser.getFloatTimeDomainData(wave);
  return wave.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
}

globalThis.orderbridgeSound = { level, sounding, state: () => context?.state ?? "none", suspend: () => context?.suspend() };
