// The program in a worker, so that the page never waits for it: a message is one command line, and
// the reply what it wrote. The text of planner.js (emscripten) stands before this one.
"use strict";

let compiled = null, program = null, out = "", err = "";

// A page has no files but what it passes along, and no other program to be in the way of.
async function start() {
  program = await gpudays({
    print: (line) => { out += line + "\n"; },
    printErr: (line) => { err += line + "\n"; },
    instantiateWasm: (imports, receive) => {
      WebAssembly.instantiate(compiled, imports).then((instance) => receive(instance, compiled));
      return {};
    },
  });
}

async function run(argv, files) {
  const begin = performance.now();
  let code = 4; // as of an internal error
  if (!program) await start();
  out = err = "";
  try {
    for (const name of Object.keys(files)) program.FS.writeFile(name, files[name]);
    const stack = program.stackSave();
    code = program.callMain(argv);
    program.stackRestore(stack);
  } catch (problem) { // an assertion of the program: the next question gets a new one
    err += "gpudays: internal error: " + problem + "\n";
    program = null;
  }
  return { code, out, err, ms: performance.now() - begin };
}

onmessage = async ({ data }) => {
  if (data.module) compiled = data.module;
  else postMessage({ id: data.id, ...await run(data.argv, data.files) });
};
