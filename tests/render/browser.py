"""A headless Chromium for tests that look at drawings and pages, and what they ask of it."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, FloatRect, Page, Playwright, Route

Scheme = Literal["light", "dark"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def start(playwright: Playwright) -> Browser:
    """The system's Chromium with a fresh profile.

    Raises RuntimeError where there is none: what is drawn would go unseen.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError(
            f"no Chromium is on PATH ({', '.join(NAMES)}), and these tests look at what it "
            "shows; scripts/setup installs Debian's, elsewhere install your system's package"
        )
    return playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))


class Window:
    """A window that loads what it is told and nothing else."""

    def __init__(self, browser: Browser) -> None:
        context = browser.new_context()
        self.page = context.new_page()
        self._scratch = context.new_page()
        self._url = ""
        self._trouble: list[str] = []
        self.page.route("**/*", self._route)
        self.page.on("console", lambda message: self._trouble.append(f"says {message.text}"))
        self.page.on("pageerror", lambda error: self._trouble.append(f"raises {error}"))
        self.page.on("dialog", lambda dialog: self._trouble.append(f"opens {dialog.message}"))

    @contextmanager
    def showing(
        self, file: Path, text: str, *, scheme: Scheme = "light", width: int = 1280
    ) -> Iterator[Page]:
        """A text as a file in the window. Fails where it asked for more, or said anything on the
        console.
        """
        file.write_text(text, encoding="utf-8")
        self._url, self._trouble = file.as_uri(), []
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(media="screen", color_scheme=scheme)
        self.page.goto(self._url)
        yield self.page
        assert self._trouble == []

    def colours(self, x: float, y: float, width: float, height: float) -> list[str]:
        """What the window paints there, `rgb(1, 2, 3)` for each pixel, row by row."""
        clip: FloatRect = {"x": x, "y": y, "width": width, "height": height}
        picture = base64.b64encode(self.page.screenshot(clip=clip)).decode()
        found: list[str] = self._scratch.evaluate(_COLOURS, picture)
        return found

    def _route(self, route: Route) -> None:
        if route.request.url == self._url or route.request.url.startswith("data:"):
            route.continue_()
        else:
            self._trouble.append(f"asks for {route.request.url}")
            route.abort()


def misplaced(page: Page) -> list[str]:
    """Texts of drawings that overlap another, leave their box, or the drawing, or are not seen."""
    found: list[str] = page.evaluate(_GEOMETRY)
    return found


def pale(page: Page, selector: str) -> list[str]:
    """Texts below 4.5 : 1 of contrast to what is behind them, as WCAG 2 counts it."""
    found: list[str] = page.evaluate(_CONTRAST, selector)
    return found


def wider_than_window(page: Page) -> Any:
    """By how many pixels a page scrolls sideways."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


# The box of a text is the smallest <rect> before it, among those of its group and the groups above,
# that holds its middle: of a frame's head the frame, of a mark the pill.
_GEOMETRY = """() => {
  const found = [], slack = 0.6;
  for (const svg of document.querySelectorAll("svg.specc-drawing")) {
    const whole = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]);
    texts.sort((a, b) => a[1].top - b[1].top);
    for (let i = 0; i < texts.length; i++) {
      const [element, box] = texts[i], name = JSON.stringify(element.textContent);
      if (!(box.width > 0 && box.height > 0)) found.push(`not seen: ${name}`);
      if (getComputedStyle(element).visibility !== "visible") found.push(`hidden: ${name}`);
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      const boxes = [...svg.querySelectorAll("rect:not(.behind)")].filter(rect =>
        rect.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING);
      let home = whole;
      for (const rect of boxes) {
        const r = rect.getBoundingClientRect();
        const holds = r.left <= x && x <= r.right && r.top <= y && y <= r.bottom;
        if (holds && r.width * r.height <= home.width * home.height) home = r;
      }
      if (box.left < home.left - slack || box.right > home.right + slack ||
          box.top < home.top - slack || box.bottom > home.bottom + slack)
        found.push(`leaves its box: ${name}`);
      for (let j = i + 1; j < texts.length && texts[j][1].top < box.bottom - 1.5; j++) {
        const other = texts[j][1];
        if (other.left < box.right - slack && other.right > box.left + slack)
          found.push(`overlap: ${name} and ${JSON.stringify(texts[j][0].textContent)}`);
      }
    }
  }
  return found;
}"""

_CONTRAST = """selector => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = element => {
    if (element instanceof SVGElement) {
      const svg = element.ownerSVGElement, box = element.getBoundingClientRect();
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      let fill = null;
      for (const rect of svg.querySelectorAll("rect")) {
        if (!(rect.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
        const r = rect.getBoundingClientRect();
        if (r.left <= x && x <= r.right && r.top <= y && y <= r.bottom)
          fill = getComputedStyle(rect).fill;
      }
      return parse(fill);
    }
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    throw new Error("nothing is behind the text");
  };
  const found = [], seen = new Set();
  const name = e => e ? `${e.localName}.${e.getAttribute("class")}` : "";
  for (const element of document.querySelectorAll(selector)) {
    const svg = element instanceof SVGElement;
    if (svg !== (element.localName === "text")) continue;
    if (!svg) {  // of thousands of lines that are styled alike, one
      const parent = element.parentElement, above = parent.parentElement;
      const alike = [element, parent, above, above && above.parentElement].map(name).join(" ");
      if (seen.has(alike)) continue;
      const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
      if (!own || !element.checkVisibility() || element.closest(".unseen")) continue;
      seen.add(alike);
    }
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(svg ? style.fill : style.color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5)
      found.push(`${contrast.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""

_COLOURS = """async picture => {
  const image = new Image();
  image.src = "data:image/png;base64," + picture;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const flat = context.getImageData(0, 0, image.width, image.height).data, found = [];
  for (let i = 0; i < flat.length; i += 4)
    found.push(`rgb(${flat[i]}, ${flat[i + 1]}, ${flat[i + 2]})`);
  return found;
}"""
