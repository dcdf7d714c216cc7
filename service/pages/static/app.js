// What a page does beyond standing there: it follows what happens, and its theme can be chosen. Without scripts it still works.
"use strict";

const EVERY_MS = 1000;
const KEPT_LINES = 5000;
const THEMES = ["system", "light", "dark"];

function themeButton() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const show = () => {
    button.textContent = `Theme: ${root.dataset.theme ?? "system"}`;
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
    if (next === "system") {
      delete root.dataset.theme;
      localStorage.removeItem("theme");
    } else {
      root.dataset.theme = next;
      localStorage.setItem("theme", next);
    }
    show();
    document.dispatchEvent(new CustomEvent("theme"));
  });
}

// Server-sent events for as long as the page is looked at: browsers allow six connections to a server, and tabs are many.
function follow(address, heard, state = () => {}) {
  let source = null;
  let last = null;
  let over = false;
  const open = () => {
    if (over || source || document.hidden) return;
    const joint = address.includes("?") ? "&" : "?";
    source = new EventSource(last === null ? address : `${address.replace(/[?&]after=\d+/, "")}${joint}after=${last}`);
    source.onopen = () => state("live");
    source.onerror = () => state("reconnecting");
    heard(source, (id) => { last = id || last; }, () => { over = true; close(); });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}

function liveRegion() {
  const address = document.body.dataset.live;
  if (!address) return;
  const pulse = document.getElementById("pulse");
  pulse.hidden = false;
  let due = 0;
  let timer = null;
  const asking = () => document.querySelector(":popover-open") !== null;
  const refresh = () => {
    timer = null;
    const region = document.getElementById("live");
    // A question that somebody is about to answer stays as it is.
    if (asking() || !region.hasAttribute("hx-get")) return;
    due = Date.now() + EVERY_MS;
    htmx.trigger(region, "news");
  };
  const news = () => {
    timer ??= setTimeout(refresh, Math.max(0, due - Date.now()));
  };
  document.addEventListener("toggle", (event) => {
    if (event.newState === "closed") news();
  }, true);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) news();
  });
  const kinds = ["experiment.submitted", "experiment.started", "experiment.step", "experiment.finished", "experiment.cancel_requested",
    "experiment.requeued", "experiment.held", "experiment.released", "experiment.moved", "load.progress", "load.stalled",
    "bench.progress", "shift.opened", "shift.closed", "shift.tripped", "production.parked", "production.restored",
    "production.not_restored", "host.added", "host.changed", "host.opening_allowed", "host.opening_withdrawn",
    "host.give_back_requested", "host.asked", "host.answered", "host.unreachable", "host.recovered", "host.blocked", "host.cleared",
    "queue.paused", "queue.resumed", "queue.drained", "worker.silent", "worker.back", "delivery.failed", "delivery.replayed",
    "baseline.pinned", "baseline.unpinned"];
  let missed = false;
  follow(address, (source, seen) => {
    for (const kind of kinds) {
      source.addEventListener(kind, (event) => {
        seen(event.lastEventId);
        news();
      });
    }
  }, (state) => {
    if (pulse.textContent !== state) pulse.textContent = state;
    pulse.classList.toggle("off", state !== "live");
    if (state !== "live") missed = true;
    else if (missed) { missed = false; news(); }
  });
}

function log() {
  const shown = document.getElementById("log");
  if (!shown) return;
  shown.scrollTop = shown.scrollHeight;
  if (!shown.dataset.follow) return;
  const step = shown.dataset.step;
  follow(shown.dataset.follow, (source, seen, end) => {
    source.addEventListener("log", (event) => {
      seen(event.lastEventId);
      const piece = JSON.parse(event.data);
      if (step && piece.step !== step) return;
      const atEnd = shown.scrollHeight - shown.scrollTop - shown.clientHeight < 24;
      const lines = (shown.textContent ? `${shown.textContent}\n${piece.text}` : piece.text).split("\n");
      shown.textContent = lines.slice(-KEPT_LINES).join("\n");
      if (atEnd) shown.scrollTop = shown.scrollHeight;
    });
    source.addEventListener("end", end);
  });
}

function copyButtons() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }
}

themeButton();
liveRegion();
log();
copyButtons();
