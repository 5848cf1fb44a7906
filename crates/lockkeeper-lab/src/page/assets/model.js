// What is known about the chapters, from what the server tells.

const emptyTimeline = () => ({ lanes: [], spans: [], marks: [], steps: [], overlaps: [], end: 0 });

const emptyChapter = () => ({ status: "idle", sides: {}, side: null, message: null, ended: null, before: null });

export class Model {
  constructor() {
    this.chapters = new Map();
    this.running = null;
    this.queued = [];
    this.ready = false;
    /** Until when all of this is known, of `performance.now()`, if the server is gone. */
    this.known = null;
  }

  /** The chapter of this number: `status` is idle, started, ended, not_run, could_not or cancelled. */
  chapter(id) {
    if (!this.chapters.has(id)) this.chapters.set(id, emptyChapter());
    return this.chapters.get(id);
  }

  /** The same as it is shown: with the last whole run, until the one after it has something to show. */
  shown(id) {
    const chapter = this.chapter(id);
    const { before, status } = chapter;
    if (!before || Object.values(chapter.sides).some(({ timeline }) => timeline.spans.length || timeline.marks.length)) return chapter;
    return { ...chapter, sides: before.sides, ended: status === "started" ? null : before.ended };
  }

  /** Takes note of a message. */
  hear(message) {
    const { kind, chapter } = message;
    switch (kind) {
      case "reset":
        this.chapters.clear();
        this.ready = false;
        break;
      case "queue":
        this.running = message.running;
        this.queued = message.queued;
        break;
      case "caught_up": {
        this.ready = true;
        this.known = null;
        const side = this.running === null ? null : this.current(this.running);
        if (side) side.began = performance.now() - message.side_us / 1000;
        break;
      }
      case "told":
        this.told(chapter, message.update);
        break;
      default:
        Object.assign(this.chapter(chapter), { status: kind, message: message.message ?? null });
    }
  }

  current(id) {
    const chapter = this.chapter(id);
    return chapter.side ? chapter.sides[chapter.side] : null;
  }

  told(id, update) {
    if (update.update === "chapter_started") {
      const last = this.chapter(id);
      this.chapters.set(id, { ...emptyChapter(), status: "started", before: last.status === "ended" ? last : last.before });
      return;
    }
    const chapter = this.chapter(id);
    const side = this.current(id);
    switch (update.update) {
      case "side_started":
        chapter.side = update.side;
        chapter.sides[update.side] = {
          lock: update.lock,
          timeline: emptyTimeline(),
          figures: [],
          verdict: null,
          began: performance.now(),
        };
        break;
      case "lane":
        side.timeline.lanes[update.id] = update;
        break;
      case "span":
        side.timeline.spans[update.id] = update;
        side.timeline.overlaps = overlaps(side.timeline.spans);
        break;
      case "mark":
        side.timeline.marks.push(update);
        break;
      case "step":
        side.timeline.steps.push(update);
        break;
      case "figure":
        // The last of a kind counts; some are told while they grow.
        side.figures = [...side.figures.filter((figure) => figure.key !== update.key), update];
        break;
      case "side_ended":
        side.verdict = update.verdict;
        side.timeline = update.timeline;
        break;
      case "not_run":
        chapter.status = "not_run";
        chapter.message = update.reason;
        break;
      case "chapter_ended":
        chapter.status = "ended";
        chapter.ended = update;
        chapter.side = null;
        break;
    }
  }
}

/** Whether the side goes on; then time passes in it. */
export const goesOn = (chapter, side) => chapter.status === "started" && side.verdict === null;

/** When holds of two lanes go on at once. An end that is not known yet is null. The server has the last word. */
function overlaps(spans) {
  const holds = spans.filter((span) => span.doing === "holds");
  // Each is compared with each: with very many, only the server does it.
  if (holds.length > 300) return [];
  const found = [];
  holds.forEach((one, at) => {
    for (const other of holds.slice(at + 1)) {
      const from = Math.max(one.from, other.from);
      const to = Math.min(one.to ?? Infinity, other.to ?? Infinity);
      if (one.lane !== other.lane && from < to) {
        const lanes = [one.lane, other.lane].sort((a, b) => a - b);
        found.push({ lanes, from, to: to === Infinity ? null : to });
      }
    }
  });
  return found;
}
