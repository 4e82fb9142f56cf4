// An execution that outlives its tokens. The body of an async function of `tools`.
const started = Date.now();
while ((await tools.issued()) < 4) await tools.nap({ seconds: 0.02 });
return { seconds: (Date.now() - started) / 1000 };
