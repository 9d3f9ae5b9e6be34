// Keeps the page itself, so that a reload while the daemon is down shows it. No answer of the daemon is kept: nothing of
// customers. The daemon puts a line before this one: `self.shell`, the version and the paths of the page's files.

const WITHIN_MS = 3000; // a computer that is gone gives no answer for minutes
const worker = /** @type {any} */ (globalThis);
const { version, paths } = worker.shell;
const NAME = `orderbridge-${version}`;
const isPage = (path) => !path.includes(".");

worker.addEventListener("install", (event) => {
  // What is no file of the page goes past the worker: a touch must not wait until a worker has begun.
  event.addRoutes?.({ condition: { urlPattern: new worker.URLPattern({ pathname: "/board/:name" }) }, source: "network" }).catch(() => {});
  event.waitUntil(keep());
});

// Pages first: their files are of this version only as long as the daemon is, so what is complete is of one version.
async function keep() {
  const cache = await caches.open(NAME);
  for (const some of [paths.filter(isPage), paths.filter((path) => !isPage(path))]) {
    await cache.addAll(some.map((path) => new Request(path, { cache: "no-store", credentials: "omit" })));
  }
  await worker.skipWaiting();
}

worker.addEventListener("activate", (event) => event.waitUntil(replace()));

async function replace() {
  const old = (await caches.keys()).filter((name) => name.startsWith("orderbridge-") && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await worker.clients.claim();
}

worker.addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (origin !== location.origin || event.request.method !== "GET" || !paths.includes(pathname)) return;
  event.respondWith(isPage(pathname) ? fresh(event.request, pathname) : kept(event.request, pathname));
});

// The daemon's page, so that none is older than the daemon; the kept one when it, or a proxy before it, has none.
async function fresh(request, path) {
  const own = await caches.match(path, { cacheName: NAME });
  const asked = fetch(request).then((response) => (response.status < 500 ? response : own ?? response));
  if (!own) return asked;
  const late = new Promise((resolve) => { setTimeout(resolve, WITHIN_MS, own); });
  return Promise.race([asked.catch(() => own), late]);
}

const kept = async (request, path) => (await caches.match(path, { cacheName: NAME })) ?? fetch(request);
