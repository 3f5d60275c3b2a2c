// Keeps an open page up to date: when the server says that there is news, the page is fetched
// again, and what has changed is put in its place. On a narrow screen the menu shows the page that is
// open. Without this file every page works, too.
"use strict";
// scrollIntoView would also move the place where the Tab key begins, past the link to the page.
for (const tab of document.querySelectorAll("nav [aria-current]")) {
  const menu = tab.closest("nav"), at = tab.getBoundingClientRect(), room = menu.getBoundingClientRect();
  menu.scrollLeft += at.left + at.width / 2 - room.left - room.width / 2;
}
(() => {
  const events = document.body.dataset.events;
  if (!events) return;
  const least = 2000; // ms between two fetches
  let busy = false, last = 0, timer = 0, stopped = false;

  const selecting = (part) => {
    const s = getSelection();
    return s && !s.isCollapsed && s.rangeCount > 0 && s.getRangeAt(0).intersectsNode(part);
  };

  // Puts the children of a part of the new page into that of the old one, and keeps the focus.
  const replace = (old, now) => {
    if (old.innerHTML === now.innerHTML || selecting(old)) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceChildren(...now.childNodes);
    if (focused) {
      for (const a of old.querySelectorAll("a")) {
        if (a.getAttribute("href") === focused) { a.focus({ preventScroll: true }); break; }
      }
    }
  };

  const refresh = async () => {
    timer = 0;
    if (busy || stopped || document.hidden) return;
    busy = true;
    last = Date.now();
    try {
      const reply = await fetch(location.href, { cache: "no-store", credentials: "same-origin", redirect: "error" });
      if (reply.ok) {
        const page = new DOMParser().parseFromString(await reply.text(), "text/html");
        for (const old of document.querySelectorAll("[data-live]")) {
          const now = page.getElementById(old.id);
          if (now) replace(old, now);
        }
      }
      document.body.classList.toggle("stale", !reply.ok);
    } catch {
      document.body.classList.add("stale");
    }
    busy = false;
  };
  const soon = () => { if (!timer) timer = setTimeout(refresh, Math.max(0, last + least - Date.now())); };

  let polling = 0;
  const source = new EventSource(events);
  source.addEventListener("news", soon);
  source.onerror = () => { // the browser tries again by itself, unless it was told not to
    if (source.readyState === EventSource.CLOSED && !polling) polling = setInterval(soon, 10000);
  };
  document.addEventListener("visibilitychange", soon);

  const box = document.createElement("label"), tick = document.createElement("input");
  tick.type = "checkbox";
  tick.checked = true;
  tick.addEventListener("change", () => { stopped = !tick.checked; soon(); });
  box.append(tick, " live");
  const place = document.getElementById("live");
  place.append(box);
  place.hidden = false;
})();
