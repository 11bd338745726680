// A formula wider than the column scrolls; let the keyboard reach it.
function markScrollingFormulas() {
  for (const box of document.querySelectorAll(".katex-display")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("load", markScrollingFormulas);
addEventListener("resize", markScrollingFormulas);
