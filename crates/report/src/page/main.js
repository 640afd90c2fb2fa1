// Adds all parts of the page in order.
head();
curves();
evaluations();
layers();
times();
table(document.getElementById('recipe'), run => run.recipe, 'key of the recipe', (run, key) => (run.defaults || []).includes(key));
table(document.getElementById('machine'), run => ({ ...run.facts, network: run.model, parameters: grouped(run.parameters), images: grouped(run.images),
  folder: run.folder, ...(run.end ? { digest: run.end.digest } : {}) }), 'fact');
