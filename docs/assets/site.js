// What scrolls sideways can be reached by the keyboard: wide tables, formulas.
function reachable() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .formula > span, .one-page :is(pre > code, p)")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
