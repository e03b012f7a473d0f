// REST's documentation; with the token of the console's tab, if one was entered there.
addEventListener("DOMContentLoaded", () => {
  window.SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#docs",
    deepLinking: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      const token = sessionStorage.getItem("rostrum-token");
      if (token && !request.headers.Authorization) request.headers.Authorization = `Bearer ${token}`;
      return request;
    },
  });
});
