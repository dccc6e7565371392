// Runs first in a page under test: remembers every error. Virtual time has no frames to wait for.
window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);
window.errorsSeen = [];
addEventListener("error", (event) => errorsSeen.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => errorsSeen.push(`rejection: ${event.reason}`));
document.addEventListener("securitypolicyviolation", (event) =>
  errorsSeen.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
console.error = (...words) => errorsSeen.push(`console: ${words.join(" ")}`);
