// Which part of a timeline is seen, and the ways to change it: wheel, pinch, drag, keys.

/** The least that fills the width, in microseconds. */
const LEAST = 2_000;

export class Viewport {
  constructor() {
    this.full = { start: 0, end: 1 };
    this.start = 0;
    this.end = 1;
    /** Whether all of it is seen, also as it grows. */
    this.follows = true;
  }

  /** All there is. */
  range(start, end) {
    this.full = { start, end };
    if (this.follows) Object.assign(this, this.full);
  }

  zoom(factor, at = (this.start + this.end) / 2) {
    const span = Math.max(LEAST, (this.end - this.start) * factor);
    const share = (at - this.start) / (this.end - this.start);
    this.show(at - span * share, span);
  }

  pan(by) {
    this.show(this.start + by, this.end - this.start);
  }

  /** Moves until this moment is seen. */
  reveal(at) {
    const span = this.end - this.start;
    if (at < this.start || at > this.end) this.show(at - span / 2, span);
  }

  all() {
    this.follows = true;
    Object.assign(this, this.full);
  }

  show(start, span) {
    const most = this.full.end - this.full.start;
    if (span >= most) return this.all();
    this.follows = false;
    this.start = Math.min(Math.max(start, this.full.start), this.full.end - span);
    this.end = this.start + span;
  }
}

/** Wheel and fingers on `element`, whose pixels `time(x)` tells in microseconds. */
export function handle(element, viewport, time, changed) {
  element.addEventListener(
    "wheel",
    (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      // The wheel alone scrolls the page; a pinch on a touch pad arrives as a wheel with Ctrl.
      if (!sideways && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (sideways) viewport.pan(time((event.deltaX || event.deltaY) * 1) - time(0));
      else viewport.zoom(Math.exp(event.deltaY * (event.deltaMode ? 0.05 : 0.004)), time(x(event)));
      changed();
    },
    { passive: false },
  );

  const x = (event) => event.clientX - element.getBoundingClientRect().left;
  const fingers = new Map();
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, x(event));
  });
  element.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = [...fingers.values()];
    const was = fingers.get(event.pointerId);
    const now = x(event);
    if (fingers.size === 1 && Math.abs(now - was) < 4 && !element.hasPointerCapture(event.pointerId)) return;
    element.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, now);
    if (fingers.size === 1) {
      viewport.pan(time(was) - time(now));
    } else {
      const after = [...fingers.values()];
      const apart = ([a, b]) => Math.max(12, Math.abs(a - b));
      const middle = (after[0] + after[1]) / 2;
      viewport.zoom(apart(before) / apart(after), time(middle));
    }
    changed();
  });
  const up = (event) => fingers.delete(event.pointerId);
  for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) element.addEventListener(name, up);
}
