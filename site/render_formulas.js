// Renders formulas for book_page.py. The input is a JSON list of formulas, each
// with whether it stands on a line of its own; the output a list of what each
// becomes in HTML, with its error or null.

const katex = require(process.argv[2]);
const formulas = JSON.parse(require("fs").readFileSync(0, "utf-8"));

console.log(JSON.stringify(formulas.map(([latex, displayMode]) => {
  try {
    // Strict, for what KaTeX alone is lenient about fails in a notebook.
    const options = { displayMode, throwOnError: true, strict: "error" };
    return [katex.renderToString(latex, options), null];
  } catch (error) {
    return ["", error.message];
  }
})));
