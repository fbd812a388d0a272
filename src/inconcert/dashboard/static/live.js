// Keeps the texts of a page current while it is looked at. It writes text and the points of charts, never HTML.
"use strict";
(() => {
  const { liveFrom, shape } = document.body.dataset;
  const stale = document.getElementById("stale");
  let source = null;

  const show = (event) => {
    const texts = JSON.parse(event.data);
    for (const element of document.querySelectorAll("[data-live]")) {
      const text = texts[element.dataset.live];
      if (text !== undefined) element.textContent = text;
    }
    for (const line of document.querySelectorAll("[data-points]")) {
      const points = texts[line.dataset.points];
      if (points !== undefined) line.setAttribute("points", points);
    }
    if (texts.shape !== undefined) stale.hidden = texts.shape === shape;
  };

  const keys = [...document.querySelectorAll("[data-live]")].map((element) => element.dataset.live);
  const rows = new Set(keys.filter((key) => key.includes(".")).map((key) => key.split(".")[0]));

  const end = () => {
    source?.close();
    source = null;
  };

  const follow = () => {
    if (document.hidden) end();
    if (document.hidden || source !== null) return;
    source = new EventSource(`${liveFrom}?rows=${[...rows].join()}`);
    source.addEventListener("message", show);
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return; // it comes back by itself
      end(); // refused, such as when too many look
      setTimeout(follow, 20000);
    });
  };

  document.addEventListener("visibilitychange", follow);
  follow();

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      const search = document.querySelector("input[type=search]");
      search.focus();
      search.select();
    }
  });
})();
