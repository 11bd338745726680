// Arrow keys, space and Page Down go from slide to slide; N shows the notes.
addEventListener("keydown", (event) => {
  const slides = [...document.querySelectorAll(".slide")];
  const now = slides.findIndex(
    (slide) => slide.getBoundingClientRect().bottom > innerHeight / 2);
  const step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1,
    ArrowLeft: -1, ArrowUp: -1, PageUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    slides[now + step]?.scrollIntoView();
  } else if (event.key.toLowerCase() === "n") {
    document.body.classList.toggle("with-notes");
    slides[now]?.scrollIntoView();
  }
});
