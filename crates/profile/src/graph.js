(function () {
  "use strict";
  var svg = document.documentElement;
  var get = function (id) { return document.getElementById(id); };
  var frames = Array.prototype.map.call(get("frames").children, function (g) {
    return {
      g: g, x: +g.dataset.x, w: +g.dataset.w, name: g.dataset.n,
      title: g.children[0].textContent, rect: g.children[1], text: g.children[2]
    };
  });
  var zoom = { x: 0, w: 1 }, pattern = null, letter = 7.23, idle = get("details").textContent;

  function draw() {
    var width = Math.max(320, window.innerWidth || 1200);
    svg.setAttribute("viewBox", "0 0 " + width + " " + svg.getAttribute("height"));
    frames.forEach(function (frame) {
      var begin = (frame.x - zoom.x) / zoom.w * width, end = begin + frame.w / zoom.w * width;
      var isSeen = end > 0.5 && begin < width - 0.5 && end - begin > 0.3;
      frame.g.style.display = isSeen ? "" : "none";
      if (!isSeen) { return; }
      frame.g.classList.toggle("parent", frame.x < zoom.x - 1e-9 || frame.w > zoom.w + 1e-9);
      var left = Math.max(0, begin), right = Math.min(width, end);
      frame.rect.setAttribute("x", left);
      frame.rect.setAttribute("width", Math.max(0.5, right - left - 0.5));
      frame.text.setAttribute("x", left + 3);
      var room = Math.floor((right - left - 6) / letter);
      frame.text.textContent = room < 3 ? "" :
        frame.name.length <= room ? frame.name : frame.name.slice(0, room - 1) + "\u2026";
    });
  }

  /* The part of the width that matches, frames above a match not counted twice. */
  function search(text) {
    pattern = null;
    if (text) {
      try { pattern = new RegExp(text, "i"); } catch (e) { get("matched").textContent = String(e); return; }
    }
    var hits = [];
    frames.forEach(function (frame) {
      var isHit = !!pattern && pattern.test(frame.name);
      frame.g.classList.toggle("hit", isHit);
      if (isHit) { hits.push([frame.x, frame.x + frame.w]); }
    });
    hits.sort(function (a, b) { return a[0] - b[0]; });
    var sum = 0, end = 0;
    hits.forEach(function (hit) {
      if (hit[1] > end) { sum += hit[1] - Math.max(end, hit[0]); end = hit[1]; }
    });
    get("matched").textContent = pattern ? text + ": " + (100 * sum).toFixed(2) + "%" : "";
  }

  function ask() { search(window.prompt("Function (a regular expression):", pattern ? pattern.source : "") || ""); }
  function reset() { zoom = { x: 0, w: 1 }; draw(); }

  frames.forEach(function (frame) {
    frame.g.addEventListener("click", function () { zoom = { x: frame.x, w: frame.w }; draw(); });
    frame.g.addEventListener("mouseenter", function () { get("details").textContent = frame.title; });
    frame.g.addEventListener("mouseleave", function () { get("details").textContent = idle; });
  });
  get("reset").addEventListener("click", reset);
  get("search").addEventListener("click", ask);
  window.addEventListener("resize", draw);
  window.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { reset(); search(""); }
    if ((event.ctrlKey || event.metaKey) && event.key === "f") { event.preventDefault(); ask(); }
  });
  draw();
})();
