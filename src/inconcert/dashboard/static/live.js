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

  const follow = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (source === null) {
      source = new EventSource(liveFrom);
      source.addEventListener("message", show);
    }
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
