// Keeps the page's files, so that it can be reloaded while the daemon is down. No answer of the daemon is kept, and so no
// customers' data. The daemon prepends a line that sets `self.shell`: the version and the paths of the page's files.

const WITHIN_MS = 3000; // an unreachable computer would give no answer for minutes
const worker = /** @type {any} */ (globalThis);
const { version, paths } = worker.shell;
const NAME = `orderbridge-${version}`;
const isPage = (path) => !path.includes(".");

worker.addEventListener("install", (event) => {
  // Requests for data bypass the worker, so that a touch does not wait for the worker to start.
  event.addRoutes?.({ condition: { urlPattern: new worker.URLPattern({ pathname: "/board/:name" }) }, source: "network" }).catch(() => {});
  event.waitUntil(keep());
});

// Pages first: an upgraded daemon no longer has this version's files, so a complete cache is of one version.
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

// The daemon's page, so that the page is not older than the daemon. The kept one if the daemon or a proxy has none.
async function fresh(request, path) {
  const own = await caches.match(path, { cacheName: NAME });
  const asked = fetch(request).then((response) => (response.status < 500 ? response : own ?? response));
  if (!own) return asked;
  const late = new Promise((resolve) => { setTimeout(resolve, WITHIN_MS, own); });
  return Promise.race([asked.catch(() => own), late]);
}

const kept = async (request, path) => (await caches.match(path, { cacheName: NAME })) ?? fetch(request);
