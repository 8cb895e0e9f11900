"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, responsive: true };

  function draw() {
    document.querySelectorAll("[data-chart]").forEach((box) => {
      const chart = charts[box.dataset.chart];
      if (!chart || typeof Plotly === "undefined") return;
      const figure = structuredClone(chart[dark.matches ? "dark" : "light"]);
      const target = box.querySelector(".plot");
      if (box.clientWidth < 520) figure.layout.font.size = 11;
      target.hidden = false;
      box.classList.add("drawn");
      Plotly.react(target, figure.data, figure.layout, config).catch(() => {
        target.hidden = true;
        box.classList.remove("drawn");
      });
    });
  }

  document.querySelectorAll("button[data-save]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      const target = document.querySelector(`[data-chart="${CSS.escape(button.dataset.save)}"] .plot`);
      Plotly.downloadImage(target, { format: "png", scale: 2, filename: button.dataset.save });
    });
  });

  let opened = [];
  window.addEventListener("beforeprint", () => {
    // Long listings stay closed on paper; their summary says that they are there.
    opened = [...document.querySelectorAll("details:not([open])")].filter(
      (item) => item.querySelectorAll("tbody tr").length <= 60,
    );
    opened.forEach((item) => { item.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((item) => { item.open = false; }));
  document.querySelectorAll("details").forEach((item) => item.addEventListener("toggle", () => {
    if (item.open) item.querySelectorAll(".plot").forEach((plot) => plot.data && Plotly.Plots.resize(plot));
  }));

  dark.addEventListener("change", draw);
  draw();
  document.documentElement.dataset.drawn = "yes";
})();
