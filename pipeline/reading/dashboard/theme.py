"""Light and dark: pages follow the browser's `prefers-color-scheme`, figures too."""

from __future__ import annotations

from typing import Any

from bokeh.events import DocumentReady
from bokeh.models import Axis, CustomJS, Legend, Title

STYLE = """
:root { color-scheme: light dark; }
body { box-sizing: border-box; margin: 0 auto; max-width: 1400px; padding: 8px;
       background: #ffffff; color: #1c2026; font: 14px/1.45 system-ui, sans-serif; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 4px 0 10px; }
nav a, a { color: #1f6db5; text-decoration: none; }
@media (prefers-color-scheme: dark) {
  body { background: #15181c; color: #e3e6ea; }
  nav a, a { color: #7db8f0; }
}
"""

SCRIPT = """
const query = window.matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
    const text = query.matches ? "#d5d9de" : "#30353b";
    for (const axis of axes) {
        axis.setv({axis_label_text_color: text, major_label_text_color: text, axis_line_color: "#8a8f98",
                   major_tick_line_color: "#8a8f98", minor_tick_line_color: null});
    }
    for (const legend of legends) { legend.label_text_color = text; }
    for (const title of titles) { title.text_color = text; }
};
query.addEventListener("change", paint);
paint();
"""


def theming(document: Any) -> None:
    """Have a document's figures painted in the colours of the browser's scheme, and again when it changes."""
    models = {
        name: list(document.select({"type": kind}))
        for name, kind in (("axes", Axis), ("legends", Legend), ("titles", Title))
    }
    document.js_on_event(DocumentReady, CustomJS(args=models, code=SCRIPT))
