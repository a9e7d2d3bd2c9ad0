"use strict";
// Keeps the element "live" of a page up to date from server-sent events. Without this script pages show the values as
// of when they were loaded.
const source = document.querySelector("[data-live-source]");
if (source && window.EventSource) {
  const part = document.getElementById("live");
  const status = document.getElementById("live-status");
  const button = document.getElementById("live-pause");
  let events = null;
  let waiting = null;

  function show(html) {
    // An element with the focus is not replaced: the keyboard focus would be lost.
    const active = document.activeElement;
    if (part.contains(active) && !active.matches(".scroll")) {
      waiting = html;
      return;
    }
    const refocus = part.contains(active) ? [...part.querySelectorAll(".scroll")].indexOf(active) : -1;
    const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    waiting = null;
    part.innerHTML = html;
    part.querySelectorAll(".scroll").forEach((each, number) => {
      each.scrollLeft = scrolled[number] || 0;
      if (number === refocus) each.focus({ preventScroll: true });
    });
  }

  function start() {
    events = new EventSource(source.dataset.liveSource);
    const updated = () => { status.textContent = "Updated while it changes."; };
    events.addEventListener("open", updated);
    events.addEventListener("live", (event) => {
      updated();  // also after a problem
      show(JSON.parse(event.data));
    });
    events.addEventListener("problem", (event) => { status.textContent = "Not updated: " + JSON.parse(event.data); });
    events.addEventListener("error", () => { status.textContent = "Not connected to the node; values may be old."; });
    button.textContent = "Pause updates";
  }

  part.addEventListener("focusout", () => { setTimeout(() => { if (waiting !== null) show(waiting); }); });
  button.addEventListener("click", () => {
    if (events) {
      events.close();
      events = null;
      status.textContent = "Updates are paused.";
      button.textContent = "Continue updates";
    } else {
      start();
    }
  });
  button.hidden = false;
  start();
}
// Marks the bytes of the field in the address (#field-7) and the field of clicked bytes; the address marks its row
// without this script, too.
function markField() {
  const chosen = /^#field-(\d+)$/.exec(location.hash);
  document.querySelectorAll(".marked").forEach((each) => each.classList.remove("marked"));
  if (!chosen) return;
  const marked = document.querySelectorAll('[data-field="' + chosen[1] + '"]');
  marked.forEach((each) => each.classList.add("marked"));
  // Only their own panes are scrolled, so that bytes and field stay visible together.
  marked.forEach((each, number) => {
    const pane = each.closest("pre, .scroll");
    if (number === 0 || each.tagName === "TR") {
      pane.scrollTop += each.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
    }
  });
}
if (document.querySelector("[data-field]")) {
  document.querySelectorAll("pre [data-field], tr[data-field] a").forEach((each) => each.addEventListener("click", (event) => {
    event.preventDefault();
    history.replaceState(null, "", "#field-" + each.closest("[data-field]").dataset.field);
    markField();
  }));
  window.addEventListener("hashchange", markField);
  markField();
}
