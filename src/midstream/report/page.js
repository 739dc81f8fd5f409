"use strict";
(() => {
  const PRINTED_PX = 700; // what fits on A4 and on Letter, upright
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figures");
  const colours = read("colours");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = {
    responsive: true,
    displaylogo: false,
    // Plotly offers to send plots to its maker. Ours stay where they are: no address, and no buttons but these.
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"], ["toImage"]],
  };

  // Colours are named in the figures, so that the same plot can stand on light paper, on dark, and in print.
  const coloured = (value, palette) => {
    if (typeof value === "string") return Object.hasOwn(palette, value) ? palette[value] : value;
    if (Array.isArray(value)) return value.map((each) => coloured(each, palette));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each, palette)]));
  };

  const draw = (printed) => {
    const palette = !printed && dark.matches ? colours.dark : colours.light;
    return Promise.all(Object.entries(figures).map(([name, figure]) => {
      const { data, layout } = coloured(figure, palette);
      const width = printed ? { width: PRINTED_PX } : { autosize: true };
      // Whoever has enlarged a part keeps it when the colours change.
      return Plotly.react(name, data, { ...layout, ...width, uirevision: "same" }, config);
    }));
  };

  dark.addEventListener("change", () => draw(false));
  window.addEventListener("beforeprint", () => draw(true));
  window.addEventListener("afterprint", () => draw(false));
  draw(false).then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
