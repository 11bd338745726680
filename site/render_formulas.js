// Renders formulas for book_page.py: each line of the input is a JSON list of
// a formula and whether it stands on a line of its own; each line of the
// output is a JSON object with its HTML or its error.

const katex = require(process.argv[2]);
const lines = require("readline").createInterface({ input: process.stdin });

lines.on("line", (line) => {
  const [latex, displayMode] = JSON.parse(line);
  let answer;
  try {
    // Strict, for what KaTeX alone is lenient about fails in a notebook.
    const options = { displayMode, throwOnError: true, strict: "error" };
    answer = { html: katex.renderToString(latex, options) };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
});
