// The board's page. Names that are not declared are the type checker's.
const js = require("@eslint/js");

const HTML = ["innerHTML", "outerHTML", "insertAdjacentHTML"];

module.exports = [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "no-var": "error",
      "prefer-const": "error",
      "object-shorthand": "error",
      "no-restricted-properties": ["error", ...HTML.map((property) => ({ property, message: "What an order says is text: use el()." }))],
      "no-restricted-globals": ["error", "event", "name", "status"],
      "no-implied-eval": "error",
      "no-eval": "error",
      eqeqeq: "error",
      curly: ["error", "multi-line"],
    },
  },
];
