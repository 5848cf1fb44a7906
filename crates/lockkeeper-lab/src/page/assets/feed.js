// What the server tells, as long as somebody looks. The server tells everything anew to whoever comes back.

/**
 * Listens at `path` while the page is visible; `heard` gets messages, `alive` whether the server is there, and until when it
 * is known to have been.
 */
export function feed(path, heard, alive) {
  let source = null;
  let again = null;
  // A quiet run sends nothing for long, so a connection that stands is a word as well.
  let stands = false;
  let known = performance.now();
  const falls = () => {
    if (stands) known = performance.now();
    stands = false;
  };
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(path);
    source.onopen = () => {
      stands = true;
      alive(true);
    };
    source.onmessage = (event) => heard(JSON.parse(event.data));
    source.onerror = () => {
      falls();
      alive(false, known);
      // The browser tries again by itself, unless the answer was none.
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        again = setTimeout(open, 2000);
      }
    };
  };
  const close = () => {
    clearTimeout(again);
    falls();
    source?.close();
    source = null;
  };
  // Browsers allow few connections to one server: those that nobody looks at are not kept.
  const turned = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", turned);
  open();
  return () => {
    document.removeEventListener("visibilitychange", turned);
    close();
  };
}

/** Asks the server to do something; answers whether that reached it, and why it was refused, if it was. */
export async function act(path) {
  try {
    const answer = await fetch(path, { method: "POST" });
    return { reached: true, refused: answer.ok ? null : await answer.text() };
  } catch {
    return { reached: false, refused: null };
  }
}
