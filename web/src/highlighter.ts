import { createHighlighterCore } from "shiki/core";
import { createJavaScriptRegexEngine } from "shiki/engine/javascript";
import python from "shiki/langs/python.mjs";
import typescript from "shiki/langs/typescript.mjs";
import dark from "shiki/themes/github-dark.mjs";
import light from "shiki/themes/github-light.mjs";

export const create = () =>
  createHighlighterCore({
    langs: [typescript, python],
    themes: [light, dark],
    engine: createJavaScriptRegexEngine(),
  });
